# docker build -t gputally .
# docker run --rm --gpus all -p 9400:9400 gputally
# By digest, because a tag can be pushed again. To renew it: docker buildx imagetools inspect python:3.13-slim
ARG PYTHON_IMAGE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY packaging/image packaging/image
# Only wheels with a known hash are installed; tools/hashes writes the lists.
ENV PIP_NO_CACHE_DIR=1
# Without pip: the image runs one program and installs nothing.
RUN python -m venv --without-pip /builder && python -m venv --without-pip /opt/gputally && \
    pip --python /builder/bin/python install --require-hashes --requirement packaging/image/build-requirements.txt && \
    pip --python /opt/gputally/bin/python install --require-hashes --requirement packaging/image/requirements.txt
COPY exporter exporter
RUN pip --python /builder/bin/python wheel --no-deps --no-build-isolation --wheel-dir /wheels . && \
    pip --python /opt/gputally/bin/python install --no-deps --no-index /wheels/*.whl
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
