package relay

import (
	"bytes"
	"testing"
)

func TestMac(t *testing.T) {
	of := func(o Options) *Relay { return &Relay{secret: secretOf(o)} }
	shared := Options{Secret: bytes.Repeat([]byte("s"), MinSecret)}
	a, b := of(shared), of(shared)
	if !bytes.Equal(a.mac("resume", "run", "ask"), b.mac("resume", "run", "ask")) {
		t.Error("two relays with one secret differ")
	}
	if !bytes.Equal(of(Options{Token: "t"}).mac("p"), of(Options{Token: "t"}).mac("p")) {
		t.Error("two relays with one token differ")
	}
	seen := map[string]string{}
	for name, m := range map[string][]byte{
		"one":     a.mac("p", "ab", "c"),
		"moved":   a.mac("p", "a", "bc"),
		"joined":  a.mac("p", "abc"),
		"more":    a.mac("p", "ab", "c", ""),
		"none":    a.mac("p"),
		"purpose": a.mac("q", "ab", "c"),
		"token":   of(Options{Token: "t"}).mac("p", "ab", "c"),
		"other":   of(Options{Token: "u"}).mac("p", "ab", "c"),
		"random":  of(Options{}).mac("p", "ab", "c"),
		"again":   of(Options{}).mac("p", "ab", "c"),
	} {
		if len(m) != 32 {
			t.Errorf("%s: %d bytes", name, len(m))
		}
		if have, ok := seen[string(m)]; ok {
			t.Errorf("%s and %s have the same mac", name, have)
		}
		seen[string(m)] = name
	}
}
