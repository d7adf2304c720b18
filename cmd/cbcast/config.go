package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/consumers/metrics"
	"github.com/cbcast/cbcast/consumers/metrics/trace"
	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/relay"
)

// envPrefix begins the name of every variable that cbcast reads. No variable
// with it reaches a child: an agent must not be able to answer its own asks.
const envPrefix = "CBCAST_"

// config is everything that the environment and the config files say. Each part
// is documented where it is used; README.md has the table.
type config struct {
	Bus   bus.Config
	Edge  ingest.Config
	Relay relay.Config `envPrefix:"RELAY_"`

	Notify  notify.Config  `envPrefix:"NOTIFY_"`
	Metrics metrics.Config `envPrefix:"METRICS_"`
	Trace   trace.Config   `envPrefix:"TRACE_"`

	// PublicURL is where people find the relay's pages: links of notices lead there.
	PublicURL string `env:"PUBLIC_URL"`

	// Archive says where the archive is; without a destination there is none.
	Archive archive.Config `envPrefix:"ARCHIVE_"`

	// RelaySecret, or what RelaySecretFile holds, is what relays sign with. Those
	// that stand for one another share it; "" follows from the local token.
	RelaySecret     string `env:"RELAY_SECRET"`
	RelaySecretFile string `env:"RELAY_SECRET_FILE"`

	// Child is the agent that a link named like one starts; "" is the next
	// executable of that name in PATH that is not cbcast itself.
	Child string `env:"CHILD"`
	// Hub says whether to use the hub of this machine when no NATS is
	// configured: auto joins or starts it, never leaves everything in the spool,
	// require fails without it. "" is never where CI is set, else auto.
	Hub string `env:"HUB"`
	// With says which consumers up runs beside the relay: auto is metrics, and those that
	// are configured; none, or names (metrics, notify, archive, trace).
	With []string `env:"UP_WITH" envDefault:"auto"`
	// StateDir holds the spool, the local store and the local token.
	StateDir string `env:"STATE_DIR"`
	// LogFile receives cbcast's own log. "" logs to stderr when that is a
	// terminal, else nowhere: hosts read an agent's stderr.
	LogFile  string `env:"LOG"`
	LogLevel string `env:"LOG_LEVEL" envDefault:"warn"`

	// Partitions, Replicas, MaxAge and MaxBytes say how the streams of a configured
	// server are made. The hub of this machine has one partition and one replica,
	// and MaxBytes for all of its streams together.
	Partitions int           `env:"PARTITIONS" envDefault:"1"`
	Replicas   int           `env:"REPLICAS" envDefault:"1"`
	MaxAge     time.Duration `env:"MAX_AGE" envDefault:"168h"`
	MaxBytes   int64         `env:"MAX_BYTES" envDefault:"1073741824"`

	// set are the names that files and environment give, known or not.
	set []string
}

// defaultLogLevel is config's.
const defaultLogLevel = "warn"

// configFiles lists the files that may hold CBCAST_ variables, weakest first.
// Hosts that start agents often replace the environment; files survive that.
func configFiles(vars map[string]string) []string {
	dir := vars["XDG_CONFIG_HOME"]
	if dir == "" && vars["HOME"] != "" {
		dir = filepath.Join(vars["HOME"], ".config")
	}
	files := []string{"/etc/cbcast/cbcast.env"}
	if dir != "" {
		files = append(files, filepath.Join(dir, "cbcast", "cbcast.env"))
	}
	return files
}

// loadConfig reads the config files and the environment; the environment wins.
func loadConfig(environ []string) (config, error) {
	vars := environMap(environ)
	merged := map[string]string{}
	for _, name := range configFiles(vars) {
		if err := readEnvFile(name, merged); err != nil {
			return config{}, err
		}
	}
	for k, v := range vars {
		merged[k] = v
	}
	var c config
	if err := env.ParseWithOptions(&c, env.Options{Prefix: envPrefix, Environment: merged}); err != nil {
		return config{}, configError(err)
	}
	for name := range merged {
		if strings.HasPrefix(name, envPrefix) {
			c.set = append(c.set, name)
		}
	}
	if c.StateDir == "" {
		c.StateDir = defaultStateDir(vars)
	}
	if c.Hub == "" {
		c.Hub = hubAuto
		if vars["CI"] != "" && vars["CI"] != "false" {
			c.Hub = hubNever
		}
	}
	return c, errors.Join(c.Bus.Check(), checkHub(c.Hub), checkWith(c.With), c.Metrics.Check())
}

func checkHub(h string) error {
	switch h {
	case hubAuto, hubNever, hubRequire:
		return nil
	}
	return fmt.Errorf("CBCAST_HUB is %q; it must be auto, never or require", h)
}

// configError says which variable cannot be read; the library names the field.
func configError(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return fmt.Errorf("read configuration: %w", err)
	}
	var errs []error
	for _, e := range all.Errors {
		var pe env.ParseError
		if errors.As(e, &pe) {
			e = fmt.Errorf("%s: %w", variableOf(reflect.TypeFor[config](), pe.Name, envPrefix), pe.Err)
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// variableOf is the variable of the field called name in t or a struct within.
func variableOf(t reflect.Type, name, prefix string) string {
	for f := range t.Fields() {
		if v, ok := f.Tag.Lookup("env"); ok && f.Name == name {
			return prefix + v
		}
		if f.Type.Kind() == reflect.Struct {
			if v := variableOf(f.Type, name, prefix+f.Tag.Get("envPrefix")); v != "" {
				return v
			}
		}
	}
	return ""
}

// What CBCAST_HUB may say.
const (
	hubAuto    = "auto"
	hubNever   = "never"
	hubRequire = "require"
)

func defaultStateDir(vars map[string]string) string {
	if d := vars["XDG_STATE_HOME"]; filepath.IsAbs(d) {
		return filepath.Join(d, "cbcast")
	}
	if h := vars["HOME"]; h != "" {
		return filepath.Join(h, ".local", "state", "cbcast")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("cbcast-%d", os.Getuid()))
}

func environMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}

// readEnvFile adds the CBCAST_ variables of one file to vars: lines NAME=value,
// blank lines and lines that begin with "#". A value may stand in quotes. A file
// that is not there is fine, a line of another form is not.
func readEnvFile(name string, vars map[string]string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read config file: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(sc.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		k, v, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if !ok || !strings.HasPrefix(k, envPrefix) {
			return fmt.Errorf("config file %s, line %d: want %sNAME=value", name, n, envPrefix)
		}
		if len(v) >= 2 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
			v = v[1 : len(v)-1]
		}
		vars[k] = v
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read config file %s: %w", name, err)
	}
	return nil
}

// childEnviron is environ without our own variables.
func childEnviron(environ []string) []string {
	out := make([]string, 0, len(environ))
	for _, kv := range environ {
		if !strings.HasPrefix(kv, envPrefix) {
			out = append(out, kv)
		}
	}
	return out
}
