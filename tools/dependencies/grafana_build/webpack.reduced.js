// Grafana's pages, built fast: its production settings, without parts that our dashboards do not use.
// tools/dependencies/grafana_build copies this file to Grafana's webpack.prod.js. LEFT_OUT has the names of
// the plugins to leave out.
const path = require('path');

const config = require('./webpack.prod.js')();

const nothing = [
  ...process.env.LEFT_OUT.split(' ').map((plugin) => `app/plugins/${plugin}/module`),
  ...['selection', 'time', 'stack', 'stackpercent', 'fillbelow', 'crosshair', 'dashes', 'gauge'].map(
    (part) => `vendor/flot/jquery.flot.${part}`
  ),
  'vendor/bootstrap/bootstrap',
  'vendor/tagsinput/bootstrap-tagsinput.js',
  'visjs-network',
  'xlsx',
];
for (const module of nothing) {
  config.resolve.alias[`${module}$`] = false;
}
config.resolve.alias['vendor/flot/jquery.flot$'] = path.join(__dirname, 'gauge.js');
// Workspaces are links in node_modules, where the loaders would not look at their TypeScript.
config.resolve.symlinks = true;

config.devtool = false;
config.cache = false;
const [scripts] = config.optimization.minimizer;
Object.assign(config.optimization, {
  minimizer: [scripts],
  concatenateModules: false,
  innerGraph: false,
  mangleExports: false,
  realContentHash: false,
});

module.exports = config;
