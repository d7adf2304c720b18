# The relay, and every other command of cbcast, in an image with nothing else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/cbcast ./cmd/cbcast && mkdir /out/state

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/cbcast /cbcast
COPY --from=build --chown=65532:65532 /out/state /state
USER 65532:65532
ENV CBCAST_STATE_DIR=/state
VOLUME /state
EXPOSE 8420
ENTRYPOINT ["/cbcast"]
CMD ["up"]
