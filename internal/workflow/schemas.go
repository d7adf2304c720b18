package workflow

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"sync"
)

// Schemas holds the JSON Schemas (2020-12) of the protocol: schema/envelope.json, one
// file for the data of each event, and schema/common.json, which they refer to.
//
//go:embed schema/*.json
var Schemas embed.FS

// Schema is one document of all [Schemas]: that of the envelope, with the others in
// its $defs under their file names. Each keeps its $id, so that they refer to one
// another as they do in files.
var Schema = sync.OnceValue(func() []byte {
	names, err := fs.Glob(Schemas, "schema/*.json")
	if err != nil {
		panic(err) // the pattern is good
	}
	var envelope map[string]json.RawMessage
	defs := map[string]json.RawMessage{}
	for _, name := range names {
		b, err := Schemas.ReadFile(name)
		if err != nil {
			panic(err) // it is compiled in
		}
		if path.Base(name) != "envelope.json" {
			defs[path.Base(name)] = b
			continue
		}
		if err := json.Unmarshal(b, &envelope); err != nil {
			panic(fmt.Errorf("%s: %w", name, err)) // a test reads them all
		}
	}
	envelope["$defs"] = encode(defs)
	var out bytes.Buffer
	if err := json.Indent(&out, encode(envelope), "", "  "); err != nil {
		panic(err) // it was just written
	}
	return out.Bytes()
})
