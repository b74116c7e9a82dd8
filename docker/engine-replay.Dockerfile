# An engine that replays recordings, for trying things out. Build from the repository's root:
# docker build -f docker/engine-replay.Dockerfile -t statsbus-engine-replay .
FROM debian:bookworm-slim AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-pip && \
    rm -rf /var/lib/apt/lists/*
COPY publisher/python /source/publisher/python
COPY tests/data/captures /captures
COPY docker/collect /source/docker/
# The secret `ca` may be absent: certificates of a package index that Debian doesn't know.
RUN --mount=type=secret,id=ca if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 -m pip install --no-cache-dir --target /image/packages /source/publisher/python && \
    mkdir -p /image/usr/bin /image/usr/lib && cp /usr/bin/python3.11 /image/usr/bin/ && cp -r /usr/lib/python3.11 /image/usr/lib/ && \
    rm /image/usr/lib/python3.11/sitecustomize.py && \
    cp -r /captures /image/ && \
    /source/docker/collect /image 10002

FROM scratch
COPY --from=build /image /
ENV PYTHONPATH=/packages PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
ENTRYPOINT ["/usr/bin/python3.11", "-m", "statsbus", "replay"]
CMD ["/captures/smallkv/stream.bin.gz", "--loop", "--bye"]
