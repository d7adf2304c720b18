package bus_test

import (
	"encoding/json"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
)

// api calls the JetStream API past the code under test.
func api(tb testing.TB, b *bus.Bus, subject string, req, resp any) {
	tb.Helper()
	var body []byte
	var err error
	if req != nil {
		if body, err = json.Marshal(req); err != nil {
			tb.Fatal(err)
		}
	}
	m, err := b.Conn().RequestWithContext(tb.Context(), "$JS.API."+subject, body)
	if err != nil {
		tb.Fatal(err)
	}
	var failed struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		tb.Fatal(err)
	}
	if failed.Error != nil {
		tb.Fatalf("%s: %s", subject, failed.Error.Description)
	}
	if resp != nil {
		if err := json.Unmarshal(m.Data, resp); err != nil {
			tb.Fatal(err)
		}
	}
}
