# The agent: one container a node. Build from the repository's root: docker build -f docker/agent.Dockerfile -t statsbus-agent .
FROM debian:bookworm-slim AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cmake gcc libc6-dev libczmq-dev libmicrohttpd-dev libyaml-dev libzmq3-dev ninja-build pkg-config uthash-dev zlib1g-dev && \
    rm -rf /var/lib/apt/lists/*
COPY . /source
RUN cmake -G Ninja -S /source -B /build -DCMAKE_C_FLAGS=-O3 -DSTATSBUS_TESTS=OFF && \
    cmake --build /build --target statsbus-agent && \
    install -D -m 0755 -s /build/bin/statsbus-agent /image/usr/bin/statsbus-agent && \
    /source/docker/collect /image 10001 && \
    mkdir -p /image/run /image/var/lib && \
    install -d -m 0750 -o 10001 -g 10001 /image/run/statsbus /image/var/lib/statsbus

FROM scratch
COPY --from=build /image /
ENV STATSBUS_AGENT_HTTP=0.0.0.0:9465
VOLUME ["/run/statsbus", "/var/lib/statsbus"]
EXPOSE 9465
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["/usr/bin/statsbus-agent", "--health"]
ENTRYPOINT ["/usr/bin/statsbus-agent"]
