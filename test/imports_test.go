package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// module begins the import path of every package of ours.
const module = "github.com/cbcast/cbcast/"

// mayImport lists, for each package of ours, which of our packages it may
// import. An entry that ends in "/" stands for everything below it. A package
// that is missing here may import none: adding a package means adding its arrows.
var mayImport = map[string][]string{
	"internal/subject":  {},
	"internal/durable":  {},
	"internal/event":    {},
	"internal/dialect":  {"internal/event"},
	"internal/run":      {"internal/event", "internal/dialect"},
	"internal/bus":      {"internal/event", "internal/subject"},
	"internal/natsd":    {"internal/durable"},
	"internal/natsauth": {"internal/subject"},
	"internal/workflow": {"internal/event", "internal/dialect", "internal/run"},
	"internal/segment":  {"internal/event", "internal/subject", "internal/durable"},
	"internal/consume":  {"internal/event", "internal/subject", "internal/dialect", "internal/run", "internal/bus", "internal/durable"},
	"internal/health":   {},

	"internal/segment/s3": {"internal/segment", "internal/durable"},

	"ingest/frame":  {},
	"ingest/child":  {"ingest/frame"},
	"ingest/redact": {"internal/event"},
	"ingest/spool":  {"internal/event", "internal/subject", "internal/durable"},
	"ingest": {
		"ingest/", "internal/event", "internal/subject", "internal/dialect", "internal/run",
		"internal/bus", "internal/durable",
	},
	"relay": {
		"internal/event", "internal/subject", "internal/dialect", "internal/run", "internal/bus",
		"internal/durable", "internal/segment", "internal/workflow",
	},
	"relay/client": {},

	"consumers/notify": {
		"internal/event", "internal/subject", "internal/dialect", "internal/run", "internal/bus",
		"internal/consume", "internal/health", "internal/durable", "consumers/notify/sink",
	},
	"consumers/notify/sink": {"internal/event", "internal/dialect", "internal/run", "internal/durable"},
	"consumers/metrics": {
		"internal/event", "internal/subject", "internal/dialect", "internal/run", "internal/bus",
		"internal/consume", "internal/health", "internal/durable",
	},
	"consumers/metrics/trace": {
		"internal/event", "internal/subject", "internal/dialect", "internal/run", "internal/bus",
		"internal/consume", "internal/health", "internal/durable",
	},
	"consumers/archive": {
		"internal/event", "internal/subject", "internal/bus", "internal/segment", "internal/segment/s3",
		"internal/consume", "internal/health", "internal/durable",
	},

	"cmd/cbcast": {"ingest", "ingest/", "relay", "relay/client", "consumers/", "internal/"},
}

// measures are programs and helpers that look at the whole from outside: tests
// and benchmarks. They may import anything, and nothing imports them but tests.
var measures = []string{"test", "test/", "bench", "bench/"}

// onlyFrom names the packages that may import a package from elsewhere, so that
// each dependency has one place. Tests may use them, too.
var onlyFrom = map[string][]string{
	"os/exec":                           {"ingest/child"},
	"github.com/nats-io/nats.go":        {"internal/bus", "internal/natsd"},
	"github.com/nats-io/nats-server/v2": {"internal/natsd"},
	"github.com/nats-io/jwt/v2":         {"internal/natsauth"},
	"github.com/nats-io/nkeys":          {"internal/natsauth", "internal/natsd"},
	"github.com/synadia-io/orbit.go":    {"internal/bus"},
	"github.com/cloudevents/sdk-go/v2":  {"internal/event"},
	"github.com/caarlos0/env/v11":       {"cmd/cbcast"},
	"github.com/spf13/cobra":            {"cmd/cbcast"},
	"golang.org/x/term":                 {"cmd/cbcast"},

	"github.com/slack-go/slack":           {"consumers/notify/sink"},
	"github.com/gorilla/websocket":        {"consumers/notify/sink"},
	"github.com/wneessen/go-mail":         {"consumers/notify/sink"},
	"github.com/standard-webhooks/":       {"consumers/notify/sink"},
	"go.yaml.in/yaml/v3":                  {"consumers/notify"},
	"github.com/minio/minio-go/v7":        {"internal/segment/s3"},
	"github.com/klauspost/compress":       {"internal/segment"},
	"github.com/parquet-go/parquet-go":    {"consumers/archive"},
	"go.opentelemetry.io/":                {"consumers/metrics/trace"},
	"github.com/prometheus/client_golang": {"relay", "internal/consume", "internal/health", "consumers/"},
}

// goPackage is what these checks need of one package in go list's words.
type goPackage struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

func (p *goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages lists every package of the module.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e",
		"-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		from := p.name()
		if within(measures, from) {
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if ours && !within(mayImport[from], to) {
				t.Errorf("%s must not import %s", from, to)
			}
			for prefix, owners := range onlyFrom {
				if (imp == prefix || strings.HasPrefix(imp, strings.TrimSuffix(prefix, "/")+"/")) && !within(owners, from) {
					t.Errorf("%s must not import %s; only %s may", from, imp, strings.Join(owners, " and "))
				}
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			to, ours := strings.CutPrefix(imp, module)
			if ours && to != from && !testMayImport(from, to) {
				t.Errorf("tests of %s must not import %s", from, to)
			}
		}
	}
}

// testMayImport reports whether from's tests may import to: beside from's own
// arrows the embedded server, pure packages and test data, but never another
// edge or the program.
func testMayImport(from, to string) bool {
	return within(mayImport[from], to) || strings.HasPrefix(to, "internal/") || strings.HasPrefix(to, "test/")
}

func within(list []string, name string) bool {
	for _, a := range list {
		if name == a || strings.HasSuffix(a, "/") && strings.HasPrefix(name, a) {
			return true
		}
	}
	return false
}
