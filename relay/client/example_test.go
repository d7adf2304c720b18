package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/cbcast/cbcast/relay/client"
)

// A relay with a run that has one event left to tell, and an interrupt that worked.
func exampleRelay() *httptest.Server {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/runs/r/stream", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Last-Event-ID") != "41" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, "retry: 1\n\nid: 42\nevent: life\ndata: {\"type\":\"dev.cbcast.edge.exited\"}\n\n")
	})
	m.HandleFunc("POST /v1/runs/r/commands", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"command":"stop-7","run":"r","name":"interrupt","state":"accepted"}`)
	})
	m.HandleFunc("GET /v1/commands/stop-7", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"command":"stop-7","state":"no_effect","final":true,"facts":[{"fact":"accepted"},{"fact":"no_effect"}]}`)
	})
	m.HandleFunc("POST /v1/runs/r/asks/a1", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"command":"answer-r-a1-1","run":"r","name":"answer"}`)
	})
	return httptest.NewServer(m)
}

func ExampleClient_Follow() {
	relay := exampleRelay()
	defer relay.Close()
	ctx, run, address, token := context.Background(), "r", relay.URL, "secret"
	c := client.Client{URL: address, Token: token} // "http://127.0.0.1:8420"

	// Every event behind number 41, once and in order; nil when the run has ended.
	err := c.Follow(ctx, run, 41, func(e client.Event) error {
		fmt.Println(e.Seq, e.Name, string(e.Data))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 42 life {"type":"dev.cbcast.edge.exited"}
	// <nil>
}

func interrupt(ctx context.Context, c *client.Client, run string) error {
	// With an id of its own a command may be sent again, and has one effect.
	sent, err := c.Send(ctx, run, client.Command{ID: "stop-7", Name: "interrupt", Args: map[string]any{"reason": "enough"}})
	if err != nil {
		return err
	}
	status, err := c.Wait(ctx, sent.Command, "settled") // its effect was seen
	if errors.Is(err, client.ErrNoFact) {
		fmt.Println("it ended as", status.State) // no_effect, refused, expired, unknown
	}
	return err
}

func ExampleClient_Wait() {
	relay := exampleRelay()
	defer relay.Close()
	fmt.Println(interrupt(context.Background(), &client.Client{URL: relay.URL}, "r"))
	// Output:
	// it ended as no_effect
	// the command ended without that fact: stop-7 is no_effect, not settled
}

func ExampleClient_Answer() {
	relay := exampleRelay()
	defer relay.Close()
	ctx, run, c := context.Background(), "r", &client.Client{URL: relay.URL}
	_, err := c.Answer(ctx, run, "a1", client.Answer{Decision: "deny", Message: "not on this branch"})
	fmt.Println(err)
	// Output: <nil>
}
