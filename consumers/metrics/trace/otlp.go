package trace

import (
	"fmt"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// scopeName is the instrumentation scope of all spans.
const scopeName = "github.com/cbcast/cbcast"

// schemaURL is the version of the semantic conventions that the names of CI/CD are of;
// those of GenAI have moved out since, under the same names.
const schemaURL = "https://opentelemetry.io/schemas/1.41.0"

// A Resource says who sends the spans.
type Resource struct {
	Service string // service.name
	Version string // service.version
	Attrs   map[string]string
}

// encode writes spans as the body of an export request. ExportTraceServiceRequest and
// TracesData are the same on the wire; the former's package brings gRPC with it.
func encode(res *resourcepb.Resource, version string, spans []Span) ([]byte, error) {
	list := make([]*tracepb.Span, len(spans))
	for i := range spans {
		list[i] = spans[i].proto()
	}
	b, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: res, SchemaUrl: schemaURL,
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: scopeName, Version: version}, Spans: list, SchemaUrl: schemaURL,
		}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode spans: %w", err)
	}
	return b, nil
}

func (r *Resource) proto() *resourcepb.Resource {
	var a attrs
	a.str("service.name", r.Service)
	a.str("service.version", r.Version)
	a.str("telemetry.sdk.name", "cbcast")
	a.str("telemetry.sdk.language", "go")
	for _, k := range sortedKeys(r.Attrs) {
		if k != "service.name" {
			a.str(k, r.Attrs[k])
		}
	}
	return &resourcepb.Resource{Attributes: keyValues(a)}
}

func (s *Span) proto() *tracepb.Span {
	p := &tracepb.Span{
		TraceId: s.Context.Trace[:], SpanId: s.ID[:], Name: s.Name, Kind: tracepb.Span_SpanKind(s.Kind),
		StartTimeUnixNano: nanos(s.Start), EndTimeUnixNano: nanos(s.End), Attributes: keyValues(s.Attrs),
		DroppedAttributesCount: s.DroppedAttrs, DroppedEventsCount: s.DroppedEvents, DroppedLinksCount: s.DroppedLinks,
		Status: &tracepb.Status{Code: tracepb.Status_StatusCode(s.Status), Message: s.Message},
		Flags:  uint32(s.Context.Flags) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK),
	}
	if !s.Parent.IsZero() {
		p.ParentSpanId = s.Parent[:]
	}
	if s.Remote {
		p.Flags |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	for _, e := range s.Events {
		p.Events = append(p.Events, &tracepb.Span_Event{Name: e.Name, TimeUnixNano: nanos(e.At), Attributes: keyValues(e.Attrs)})
	}
	for _, l := range s.Links {
		p.Links = append(p.Links, &tracepb.Span_Link{TraceId: l.Trace[:], SpanId: l.Parent[:], Flags: uint32(l.Flags)})
	}
	return p
}

func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixNano())) //nolint:gosec // not negative
}

func keyValues(list []Attr) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(list))
	for _, a := range list {
		out = append(out, &commonpb.KeyValue{Key: a.Key, Value: anyValue(a.Value)})
	}
	return out
}

func anyValue(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case string:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}
	case int64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}
	case float64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case []string:
		l := &commonpb.ArrayValue{}
		for _, s := range v {
			l.Values = append(l.Values, anyValue(s))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: l}}
	}
	return &commonpb.AnyValue{}
}

// partial reads what a collector did not take of a request that it answered with 2xx:
// the field partial_success of ExportTraceServiceResponse.
func partial(body []byte) (rejected int64, message string) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return rejected, message
		}
		body = body[n:]
		if num == 1 && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(body)
			if n < 0 {
				return rejected, message
			}
			rejected, message = partialFields(v)
			body = body[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return rejected, message
		}
		body = body[n:]
	}
	return rejected, message
}

func partialFields(b []byte) (rejected int64, message string) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return rejected, message
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, k := protowire.ConsumeVarint(b)
			rejected, n = int64(v), k //nolint:gosec // an int64 on the wire
		case num == 2 && typ == protowire.BytesType:
			v, k := protowire.ConsumeBytes(b)
			message, n = clip(string(v), maxValue), k
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return rejected, message
		}
		b = b[n:]
	}
	return rejected, message
}
