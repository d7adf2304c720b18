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

// A doctor says of each program whether up runs it, and whether its settings can work.
func TestDoctorConsumers(t *testing.T) {
	file := rulesFile(t, "version: 7\n")
	for name, tc := range map[string]struct {
		with        []string
		rules, dest string
		want        map[string]string // state and the beginning of the text
	}{
		"nothing is set": {[]string{"auto"}, "", "", map[string]string{
			"metrics": "ok a part of cbcast up", "notify": "ok not set up: tells people of runs where CBCAST_NOTIFY_RULES is set",
			"archive": "ok not set up", "trace": "ok not set up",
		}},
		"up runs none":    {[]string{"none"}, rulesFile(t, logRules), "", map[string]string{"notify": "ok its settings are right; cbcast up does not run it", "metrics": "ok its settings are right"}},
		"right rules":     {[]string{"auto"}, rulesFile(t, logRules), "", map[string]string{"notify": "ok a part of cbcast up"}},
		"wrong rules":     {[]string{"auto"}, file, "", map[string]string{"notify": "fail " + file + ": line 1, column 1: the file lacks destinations, rules: add it (and 1 more)"}},
		"named, not set":  {[]string{"notify"}, "", "", map[string]string{"notify": "fail there are no rules: set CBCAST_NOTIFY_RULES"}},
		"a wrong archive": {[]string{"auto"}, "", "ftp://x/y", map[string]string{"archive": "fail "}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &app{cfg: config{With: tc.with}}
			a.cfg.Notify.Rules, a.cfg.Archive.Dest = tc.rules, tc.dest
			d := &doctor{a: a}
			d.consumers()
			got := map[string]string{}
			for _, c := range d.checks {
				got[c.Name] = c.State + " " + c.Text
			}
			for part, want := range tc.want {
				if !strings.HasPrefix(got[part], want) {
					t.Errorf("%s: %q, want %q", part, got[part], want)
				}
			}
			if len(got) != len(consumerKinds()) {
				t.Errorf("%d lines: %v", len(got), got)
			}
		})
	}
}

// The programs say the same of their exit codes.
func TestConsumerExits(t *testing.T) {
	for _, k := range consumerKinds() {
		code, out, errs := program(t, nil, k.name, "--help")
		if code != 0 || !strings.Contains(out, strings.TrimSpace(consumerExits)) {
			t.Errorf("%s: exit %d\n%s%s", k.name, code, out, errs)
		}
	}
}
