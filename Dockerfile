# Every command of cbcast, in an image with nothing else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/cbcast ./cmd/cbcast && mkdir -p /out/state /out/secrets/prometheus /out/archive

FROM scratch
LABEL org.opencontainers.image.title="cbcast" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/cbcast /cbcast
# What a volume is made from that is mounted there.
COPY --from=build --chown=65532:65532 /out/state /state
COPY --from=build --chown=65532:65532 /out/secrets /secrets
COPY --from=build --chown=65532:65532 /out/archive /archive
USER 65532:65532
ENV CBCAST_STATE_DIR=/state
VOLUME /state
EXPOSE 8420 8421 8422 8423
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s CMD ["/cbcast", "health", "http://127.0.0.1:8420"]
ENTRYPOINT ["/cbcast"]
CMD ["up"]
