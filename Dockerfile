# docker build -t gputally .
# docker run --rm --gpus all -p 9400:9400 gputally
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY tools/constraints.txt tools/
COPY exporter exporter
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# Without pip: the image runs one program and installs nothing.
RUN python -m venv --without-pip /opt/gputally && \
    pip --python /opt/gputally/bin/python install --no-cache-dir --constraint tools/constraints.txt \
        "$(ls /wheels/*.whl)[kubernetes]"
RUN mkdir state

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="gputally" \
      org.opencontainers.image.description="GPU exporter for Prometheus" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.2.0"
COPY --from=build /opt/gputally /opt/gputally
# The NVIDIA container runtime reads the last two: all GPUs, and only NVML and nvidia-smi of the driver.
ENV PATH=/opt/gputally/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
# For --state-file: a volume mounted here is owned by the user below.
COPY --from=build --chown=65532:65532 /src/state /var/lib/gputally
# A numeric id, so that Kubernetes can verify runAsNonRoot.
USER 65532:65532
EXPOSE 9400
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + (os.environ.get('GPUTALLY_PORT') or os.environ.get('EXPORTER_PORT') or '9400') + '/healthz', timeout=4)"]
ENTRYPOINT ["gputally"]
CMD ["serve"]
