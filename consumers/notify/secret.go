package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
)

// A Lookup finds a variable of the environment.
type Lookup func(name string) (string, bool)

// maxSecretFile bounds a file that holds a secret.
const maxSecretFile = 64 << 10

// resolve returns what a text of the rules stands for: "env:NAME" the variable,
// "file:PATH" the file without its last line break, else the text itself.
func resolve(s string, env Lookup) (string, error) {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
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
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("a secret's file: %w", err)
		}
		if info.Size() > maxSecretFile {
			return "", fmt.Errorf("a secret's file: %s is too large", path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("a secret's file: %w", err)
		}
		v := strings.TrimRight(string(b), "\r\n")
		if v == "" {
			return "", fmt.Errorf("a secret's file: %s is empty", path)
		}
		return v, nil
	}
	return s, nil
}

// secretKeys are the keys of a destination whose values are resolved, and hidden.
// Below users and allow are none.
var secretKeys = list{"token", "app_token", "signing_secret", "url", "secrets", "headers", "user", "password", "env", "proxy"}

// settled is a destination's settings with every reference resolved, and the secrets
// among them.
func (d *Destination) settled(env Lookup) (settings json.RawMessage, hidden []string, err error) {
	var m map[string]any
	if err := json.Unmarshal(d.settings, &m); err != nil {
		return nil, nil, err
	}
	var errs []error
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			s, err := resolve(v, env)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s stands for nothing here: %w", v, err)) // a reference, no secret
			}
			hidden = append(hidden, s)
			return s
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	for _, k := range secretKeys {
		if v, ok := m[k]; ok {
			m[k] = walk(v)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	settings, err = json.Marshal(m)
	return settings, hidden, err
}

// A scrubber takes the secrets of the rules out of texts for logs and files: a second
// line behind the sinks, which let none through.
type scrubber struct {
	mu     sync.RWMutex
	hidden []string // the longest first
}

// minSecret is from which length on a value is taken out: shorter ones are words.
const minSecret = 6

func (s *scrubber) set(values []string) {
	var all []string
	add := func(v string) {
		if len(v) >= minSecret && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	for _, v := range values {
		add(v)
		u, err := url.Parse(v)
		if err != nil || u.Host == "" {
			continue
		}
		add(u.RequestURI())
		add(strings.TrimPrefix(u.EscapedPath(), "/"))
		add(u.RawQuery)
		for part := range strings.SplitSeq(u.Path, "/") {
			if len(part) >= 2*minSecret {
				add(part)
			}
		}
		for _, values := range u.Query() {
			for _, v := range values {
				add(v)
			}
		}
		if p, ok := u.User.Password(); ok {
			add(p)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	s.mu.Lock()
	s.hidden = all
	s.mu.Unlock()
}

func (s *scrubber) clean(text string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.hidden {
		text = strings.ReplaceAll(text, h, "[hidden]")
	}
	return text
}
