package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

func TestSkew(t *testing.T) {
	for _, tc := range []struct {
		ahead, trip time.Duration
		want        string
	}{
		{0, time.Millisecond, isOK},
		{-time.Second, time.Millisecond, isOK},
		{3 * time.Second, time.Millisecond, isWarn},
		{3 * time.Second, 4 * time.Second, isOK}, // nobody can know
		{-3 * time.Second, time.Millisecond, isWarn},
		{time.Minute, time.Second, isFail},
		{-time.Minute, time.Second, isFail},
	} {
		if got := skew(tc.ahead, tc.trip); got != tc.want {
			t.Errorf("%s ahead with a round trip of %s: %s, want %s", tc.ahead, tc.trip, got, tc.want)
		}
	}
}

func TestHideSecrets(t *testing.T) {
	cfg := bus.Config{URL: "nats://u:pass1@a:1,nats://b:2,u:pass3@c:1", Token: "token1", Password: "pass2"}
	got := hideSecrets(errors.New("dial nats://u:pass1@a:1 with token1 and pass2, u:pass3@c:1"), cfg)
	for _, secret := range []string{"pass1", "pass2", "pass3", "token1"} {
		if strings.Contains(got, secret) {
			t.Errorf("%q holds %s", got, secret)
		}
	}
}
