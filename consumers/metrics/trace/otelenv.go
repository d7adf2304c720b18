package trace

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// FromEnv reads the standard variables of OpenTelemetry for traces from env: endpoint,
// headers, compression, timeout and certificates of OTEL_EXPORTER_OTLP_[TRACES_]…,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER[_ARG]. endpoint,
// if not "", is the URL for traces instead of what they say; without a path it gets the
// usual one. Values are in no error: they may hold secrets.
func FromEnv(env map[string]string, endpoint, version string) (Collector, func(Context) bool, error) {
	vars := otlpVars(env)
	get := func(name string) string { return env[vars.name(name)] }
	c := Collector{Endpoint: withPath(endpoint), From: "CBCAST_TRACE_ENDPOINT", Resource: Resource{Service: "cbcast", Version: version}}
	if c.Endpoint == "" {
		c.From = vars.name("ENDPOINT")
		if c.Endpoint = env[c.From]; c.Endpoint != "" && c.From == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			c.Endpoint = strings.TrimRight(c.Endpoint, "/") + "/v1/traces"
		}
	}
	switch p := get("PROTOCOL"); p {
	case "", "http/protobuf":
	default:
		return c, nil, errors.New(vars.name("PROTOCOL") + ": only http/protobuf is spoken; a collector takes it on port 4318")
	}
	switch get("COMPRESSION") {
	case "", "none":
	case "gzip":
		c.Gzip = true
	default:
		return c, nil, errors.New(vars.name("COMPRESSION") + " is gzip or none")
	}
	if v := get("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 || ms > int(time.Hour/time.Millisecond) {
			return c, nil, errors.New(vars.name("TIMEOUT") + " is a number of milliseconds, at most an hour of them")
		}
		c.Timeout = time.Duration(ms) * time.Millisecond
	}
	var err error
	if c.Headers, err = pairs(get("HEADERS")); err != nil {
		return c, nil, fmt.Errorf("%s: %w", vars.name("HEADERS"), err)
	}
	if c.TLS, err = tlsOf(vars); err != nil {
		return c, nil, err
	}
	if c.Resource.Attrs, err = pairs(env["OTEL_RESOURCE_ATTRIBUTES"]); err != nil {
		return c, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	for _, v := range []string{c.Resource.Attrs["service.name"], env["OTEL_SERVICE_NAME"]} {
		if v != "" {
			c.Resource.Service = v
		}
	}
	sample, err := sampler(env["OTEL_TRACES_SAMPLER"], env["OTEL_TRACES_SAMPLER_ARG"])
	return c, sample, err
}

// otlpVars are the variables of an exporter.
type otlpVars map[string]string

// name is the variable that says a setting: the one for traces where it is set.
func (env otlpVars) name(setting string) string {
	if name := "OTEL_EXPORTER_OTLP_TRACES_" + setting; env[name] != "" {
		return name
	}
	return "OTEL_EXPORTER_OTLP_" + setting
}

// withPath adds the usual path of traces to a URL that has none.
func withPath(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return endpoint
	}
	u.Path = "/v1/traces"
	return u.String()
}

// pairs reads "key=value,key=value", values percent-encoded, as the specification has
// headers and resource attributes.
func pairs(list string) (map[string]string, error) {
	m := map[string]string{}
	for item := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		k, v, ok := strings.Cut(item, "=")
		k = strings.TrimSpace(k)
		if !ok || k == "" {
			return nil, errors.New("the form is key=value,key=value")
		}
		v, err := url.PathUnescape(strings.TrimSpace(v))
		if err != nil {
			return nil, errors.New("a value is not percent-encoded")
		}
		m[k] = v
	}
	return m, nil
}

// tlsOf reads the certificates; nil where none is named.
func tlsOf(vars otlpVars) (*tls.Config, error) {
	get := func(name string) string { return vars[vars.name(name)] }
	ca, cert, key := get("CERTIFICATE"), get("CLIENT_CERTIFICATE"), get("CLIENT_KEY")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := durable.ReadRegular(ca, durable.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", vars.name("CERTIFICATE"), err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New(vars.name("CERTIFICATE") + ": no certificate in the file")
		}
	}
	if cert != "" || key != "" {
		pair, err := keyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", vars.name("CLIENT_CERTIFICATE"), vars.name("CLIENT_KEY"), err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// sampler is what OTEL_TRACES_SAMPLER says. A part of the traces is chosen by their ids,
// as the SDKs do, so that all who take part in a trace choose alike.
func sampler(name, arg string) (func(Context) bool, error) {
	ratio := 1.0
	if strings.HasSuffix(name, "traceidratio") && arg != "" {
		v, err := strconv.ParseFloat(arg, 64)
		if err != nil || v < 0 || v > 1 {
			return nil, errors.New("OTEL_TRACES_SAMPLER_ARG is a number from 0 to 1")
		}
		ratio = v
	}
	bound := uint64(ratio * (1 << 63))
	chosen := func(c Context) bool {
		var x uint64
		for _, b := range c.Trace[8:] {
			x = x<<8 | uint64(b)
		}
		return x>>1 < bound
	}
	parent := func(own func(Context) bool) func(Context) bool {
		return func(c Context) bool {
			if c.Parent.IsZero() {
				return own(c)
			}
			return Recorded(c)
		}
	}
	always := func(Context) bool { return true }
	never := func(Context) bool { return false }
	switch name {
	case "", "parentbased_always_on":
		return Recorded, nil
	case "always_on":
		return always, nil
	case "always_off":
		return never, nil
	case "parentbased_always_off":
		return parent(never), nil
	case "traceidratio":
		return chosen, nil
	case "parentbased_traceidratio":
		return parent(chosen), nil
	}
	return nil, errors.New("OTEL_TRACES_SAMPLER is no sampler that is known here")
}

func keyPair(cert, key string) (tls.Certificate, error) {
	c, err := durable.ReadRegular(cert, durable.MaxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := durable.ReadRegular(key, durable.MaxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(c, k)
}
