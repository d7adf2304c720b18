package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/durable"
)

// A Lookup finds a variable of the environment.
type Lookup func(name string) (string, bool)

// reference is env:NAME or file:PATH for an error. What is no name of a variable may be the
// secret itself.
func reference(s string) string {
	name, ok := strings.CutPrefix(s, "env:")
	if ok && (shown(name) != name || !isVariable(name)) {
		return "env:…"
	}
	return s
}

// isVariable reports whether a text can name a variable.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// maxSecretFile bounds a file that holds a secret.
const maxSecretFile = 64 << 10

// resolve returns what a text of the rules stands for: "env:NAME" the variable,
// "file:PATH" the file without its last line break, else the text itself.
func resolve(s string, env Lookup) (string, error) {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		if reference(s) != s {
			return "", errors.New("behind env: stands the name of a variable, and not what it holds")
		}
		if env == nil {
			return "", fmt.Errorf("the variable %s cannot be read here", name)
		}
		v, ok := env(name)
		if !ok || v == "" {
			return "", fmt.Errorf("the variable %s is not set: set it where cbcast notify runs", name)
		}
		return v, nil
	}
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		v, err := ReadSecret(path)
		if err != nil {
			return "", fmt.Errorf("a secret's file: %w", err)
		}
		return v, nil
	}
	return s, nil
}

// ReadSecret reads a file that holds a secret, without its last line break.
func ReadSecret(path string) (string, error) {
	b, err := durable.ReadRegular(path, maxSecretFile)
	if err != nil {
		return "", err
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return v, nil
}

// secretKeys are the keys of a destination whose values are resolved, and hidden.
// Below users and allow are none.
var secretKeys = list{"app_token", "env", "headers", "password", "proxy", "secrets", "signing_secret", "token", "url", "user"}

// A settled is a destination's settings with every reference resolved.
type settled struct {
	raw    json.RawMessage
	hidden *sink.Hidden // its secrets
	// bad says which settings refer to what is not here. They are texts of no meaning.
	bad []*sink.SettingError
	cut []string // keys that are wrong themselves, which is said
}

// resolved looks up what the settings refer to.
func (d *Destination) resolved(env Lookup) (*settled, error) {
	var m map[string]any
	if err := json.Unmarshal(d.settings, &m); err != nil {
		return nil, errors.New("its settings cannot be read")
	}
	out := &settled{cut: d.cut}
	var tokens, addresses []string
	var walk func(v any, at string) any
	walk = func(v any, at string) any {
		switch v := v.(type) {
		case string:
			s, err := resolve(v, env)
			if err != nil {
				out.bad = append(out.bad, &sink.SettingError{Key: at, Err: fmt.Errorf("%s stands for nothing here: %w", reference(v), err)})
				return s
			}
			switch at {
			case "url", "proxy":
				addresses = append(addresses, s)
			case "user": // below, with its password
			default:
				if v, ok := strings.CutPrefix(at, "env/"); !ok || sink.SecretVariable(v) {
					tokens = append(tokens, s)
				}
			}
			return s
		case []any:
			for i := range v {
				v[i] = walk(v[i], at+"/"+strconv.Itoa(i))
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				v[k] = walk(v[k], at+"/"+pointer(k))
			}
		}
		return v
	}
	for _, k := range secretKeys {
		if v, ok := m[k]; ok {
			m[k] = walk(v, k)
		}
	}
	user, _ := m["user"].(string)
	password, _ := m["password"].(string)
	out.hidden = sink.NewHidden(addresses, tokens...).And(sink.HideLogin(user, password))
	var err error
	out.raw, err = json.Marshal(m)
	return out, err
}

// open makes the destination's sink of the settings. Without an actor of o nothing on the
// disk is touched.
func (s *settled) open(name string, o Options) (sink.Sink, error) {
	var errs []error
	for _, e := range s.bad {
		errs = append(errs, e)
	}
	opened, err := openSink(name, s.raw, o)
	if err == nil && len(errs) == 0 {
		return opened, nil // also of a destination that lacks what is wrong, to be looked at
	}
	if err == nil {
		return nil, errors.Join(append(errs, opened.Close())...)
	}
	for _, e := range each(err) {
		var at *sink.SettingError
		if !errors.As(e, &at) || !s.unknown(at.Key) { // else it follows from the others
			errs = append(errs, e)
		}
	}
	return nil, errors.Join(errs...)
}

// unknown reports whether a setting, or one that it is made of, refers to what is not here.
func (s *settled) unknown(key string) bool {
	first, _, _ := strings.Cut(key, "/")
	return slices.Contains(s.cut, first) || slices.ContainsFunc(s.bad, func(b *sink.SettingError) bool {
		return b.Key == key || strings.HasPrefix(key, b.Key+"/") || b.Key == "user" && key == "password"
	})
}

// each lists errors that are joined, however deep.
func each(err error) (all []error) {
	switch many := err.(type) { //nolint:errorlint // what wraps one error has something to say of it
	case nil:
	case interface{ Unwrap() []error }:
		for _, e := range many.Unwrap() {
			all = append(all, each(e)...)
		}
	default:
		all = append(all, err)
	}
	return all
}
