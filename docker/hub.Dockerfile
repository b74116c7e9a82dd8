# The hub: one container a service. Build from the repository's root: docker build -f docker/hub.Dockerfile -t statsbus-hub .
FROM debian:bookworm-slim AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cmake gcc libc6-dev libczmq-dev libmicrohttpd-dev libyaml-dev libzmq3-dev ninja-build pkg-config uthash-dev zlib1g-dev && \
    rm -rf /var/lib/apt/lists/*
COPY . /source
RUN cmake -G Ninja -S /source -B /build -DCMAKE_C_FLAGS=-O3 -DSTATSBUS_TESTS=OFF && \
    cmake --build /build --target statsbus-hub && \
    install -D -m 0755 -s /build/bin/statsbus-hub /image/usr/bin/statsbus-hub && \
    /source/docker/collect /image 10001

FROM scratch
COPY --from=build /image /
ENV STATSBUS_HUB_AGENTS=tcp://0.0.0.0:5577 STATSBUS_HUB_HTTP=0.0.0.0:9464
EXPOSE 5577 9464
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["/usr/bin/statsbus-hub", "--health"]
ENTRYPOINT ["/usr/bin/statsbus-hub"]
