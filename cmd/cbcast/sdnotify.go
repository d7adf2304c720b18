package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// A supervisor is the service manager that started this process: systemd with
// Type=notify, or whatever speaks its protocol (sd_notify(3)). The zero one hears nothing.
type supervisor struct {
	send  func(state string) error // nil: there is none
	watch time.Duration            // within which it wants a sign of life; 0 is none
}

// supervisor reads what the manager left in the environment.
func (a *app) supervisor() (supervisor, error) {
	vars := environMap(a.environ)
	name := vars["NOTIFY_SOCKET"]
	if name == "" {
		return supervisor{}, nil
	}
	if name[0] != '/' && name[0] != '@' {
		return supervisor{}, fmt.Errorf("NOTIFY_SOCKET is %q; it must be a path or an abstract name", name)
	}
	s := supervisor{send: func(state string) error {
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			return err
		}
		_, err = c.Write([]byte(state))
		return errors.Join(err, c.Close())
	}}
	if pid := vars["WATCHDOG_PID"]; pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(vars["WATCHDOG_USEC"], 10, 64); err == nil && usec > 0 {
			s.watch = time.Duration(usec) * time.Microsecond
		}
	}
	return s, nil
}

// supervised tells the manager that this process is ready, that it lives for as long as alive
// says so, and, when ctx ends or the returned function is called, that it stops. That function
// waits for the last word.
func (a *app) supervised(ctx context.Context, log *slog.Logger, status string, alive func(context.Context) error) (stopping func()) {
	s, err := a.supervisor()
	if err != nil {
		log.Warn("service manager", "error", err)
	}
	return s.run(ctx, log, status, alive)
}

func (s supervisor) run(ctx context.Context, log *slog.Logger, status string, alive func(context.Context) error) (stopping func()) {
	if s.send == nil {
		return func() {}
	}
	say := func(state string) {
		if err := s.send(state); err != nil {
			log.Warn("tell the service manager", "state", state, "error", err)
		}
	}
	say("READY=1\nSTATUS=" + status)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // ends with ctx
		if s.watch > 0 {
			s.live(ctx, log, say, alive)
		}
		<-ctx.Done()
		say("STOPPING=1")
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// live says until ctx ends that the process lives, three times within the time that the manager waits. When
// alive fails it is silent: the manager then ends the process and starts it again.
func (s supervisor) live(ctx context.Context, log *slog.Logger, say func(string), alive func(context.Context) error) {
	every := max(s.watch/3, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		actx, cancel := context.WithTimeout(ctx, every)
		err := alive(actx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Warn("no sign of life", "error", err)
		default:
			say("WATCHDOG=1")
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// answers reports whether this process's own HTTP server at url does anything: any answer is
// one. The certificate is not looked at, nothing is sent to whoever has it.
func answers(ctx context.Context, url string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
	if err != nil {
		return err
	}
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(q)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// alive asks the relay, where this process serves one.
func (s *station) alive(ctx context.Context) error {
	s.mu.Lock()
	at := s.relayAt
	if s.relay == nil {
		at = ""
	}
	s.mu.Unlock()
	if at == "" {
		return nil
	}
	return answers(ctx, at)
}
