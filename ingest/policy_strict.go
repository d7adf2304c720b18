package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// strict looks for what encoding/json lets pass: a key that stands twice (also in
// another case, for it takes that as the same key), and a pattern of a rule that is
// there and empty, which would match everything. What is no JSON is found later.
func strict(text []byte) error {
	v := json.RawMessage(bytes.TrimSpace(text))
	if string(v) == "null" {
		return errors.New("want an object")
	}
	return strictValue("", v, 4)
}

var patterns = []string{"tool", "command", "repo", "tenant"}

// strictValue looks at one value, levels deep; at is the key that it stands behind.
func strictValue(at string, v json.RawMessage, levels int) error {
	if levels == 0 {
		return nil // no policy is so deep
	}
	dec := json.NewDecoder(bytes.NewReader(v))
	open, _ := dec.Token()
	seen := map[string]bool{}
	for (open == json.Delim('{') || open == json.Delim('[')) && dec.More() {
		key := at
		if open == json.Delim('{') {
			t, _ := dec.Token()
			key, _ = t.(string)
			key = strings.ToLower(key)
			if seen[key] {
				return fmt.Errorf("%q stands twice in one object", key)
			}
			seen[key] = true
		}
		var item json.RawMessage
		if dec.Decode(&item) != nil {
			return nil
		}
		if at == "rules" && slices.Contains(patterns, key) && (string(item) == `""` || string(item) == "null") {
			return fmt.Errorf("%s is empty: leave it out where all are meant", key)
		}
		if err := strictValue(key, item, levels-1); err != nil {
			return err
		}
	}
	return nil
}
