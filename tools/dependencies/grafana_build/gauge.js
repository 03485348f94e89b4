// Grafana's gauge is drawn by $.plot, of libraries that its source keeps in a folder named "vendor", and Go
// modules leave such folders out. This is $.plot for the gauge alone, as components/Gauge of @grafana/ui calls
// it. The other users of those libraries are panels of Angular's days, which are left out too.
const $ = require('jquery');

const START = 0.9 * Math.PI;
const SWEEP = 1.2 * Math.PI;
// How far the arc's ends hang below its centre, in radii.
const BELOW = Math.sin(SWEEP / 2 - Math.PI / 2);

function canvasOf(placeholder, width, height) {
  const scale = window.devicePixelRatio || 1;
  const canvas = document.createElement('canvas');
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  placeholder.replaceChildren(canvas);
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  return context;
}

function ring(context, centre, outside, width, from, to, color) {
  if (width <= 0 || outside <= width || to <= from) {
    return;
  }
  context.beginPath();
  context.arc(centre.x, centre.y, outside - width / 2, from, to);
  context.lineWidth = width;
  context.strokeStyle = color;
  context.stroke();
}

function draw(context, width, height, number, { gauge, threshold, value }) {
  const angle = (at) => {
    const share = (at - gauge.min) / (gauge.max - gauge.min);
    return START + SWEEP * Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0));
  };
  const labelSize = threshold.label.show ? threshold.label.font.size : 0;
  const outside = Math.max(0, Math.min(width / 2 - 2 * labelSize, (height - labelSize) / (1 + BELOW)) - 2);
  const centre = { x: width / 2, y: outside + labelSize + 2 };
  const inside = threshold.show ? outside - threshold.width - 1 : outside;

  ring(context, centre, inside, gauge.width, START, START + SWEEP, gauge.background.color);
  if (Number.isFinite(number)) {
    const ends = [Number.isFinite(gauge.neutralValue) ? angle(gauge.neutralValue) : START, angle(number)];
    ring(context, centre, inside, gauge.width, Math.min(...ends), Math.max(...ends), value.color);
  }
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  if (threshold.show) {
    let from = START;
    for (const step of threshold.values) {
      ring(context, centre, outside, threshold.width, from, angle(step.value), step.color);
      from = angle(step.value);
    }
  }
  if (threshold.label.show) {
    context.font = `${labelSize}px ${value.font.family}`;
    for (const step of threshold.values) {
      const away = outside + labelSize;
      const at = angle(step.value);
      context.fillStyle = step.color;
      context.fillText(step.value, centre.x + away * Math.cos(at), centre.y + away * Math.sin(at));
    }
  }
  const text = value.formatter();
  context.font = `${value.font.size}px ${value.font.family}`;
  const room = 1.8 * Math.max(0, inside - gauge.width);
  const size = value.font.size * Math.min(1, room / context.measureText(text).width);
  context.font = `${size}px ${value.font.family}`;
  context.fillStyle = value.color;
  context.fillText(text, centre.x, centre.y);
}

$.plot = (placeholder, [series], options) => {
  const { clientWidth: width, clientHeight: height } = placeholder;
  draw(canvasOf(placeholder, width, height), width, height, series.data[0][1], options.series.gauges);
};
