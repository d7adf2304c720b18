package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/natsd"
)

// newEdge prepares an edge of this program: its options, and its place on the bus.
// end leaves the bus and closes the log.
func (a *app) newEdge() (opt ingest.Options, st *station, end func(), err error) {
	log, closeLog, err := a.logger()
	if err != nil {
		return opt, nil, nil, err
	}
	opt = a.edgeOptions(log)
	if err := errors.Join(checkHub(a.cfg.Hub), opt.Validate()); err != nil {
		closeLog()
		return opt, nil, nil, &exitError{exitUsage, err}
	}
	if err := a.stateDir(); err != nil {
		// The agent comes first: it runs, and nothing is recorded.
		opt.Unusable = err
	}
	st = a.newStation(log)
	opt.Dial = st.edgeDialer()
	return opt, st, func() { st.close(); closeLog() }, nil
}

// stateDir makes the state directory and checks that it is ours.
func (a *app) stateDir() error {
	if err := os.MkdirAll(a.cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	return private(a.cfg.StateDir)
}

// edgeOptions are the options that every edge of this program has.
func (a *app) edgeOptions(log *slog.Logger) ingest.Options {
	key, err := secretFile(filepath.Join(a.cfg.StateDir, "hash.key"))
	if err != nil {
		log.Warn("no key for keyed hashes; this run has one of its own", "error", err)
		key = randomKey()
	}
	env := environMap(a.environ)
	return ingest.Options{
		TraceParent: ingest.TraceParent(env),
		Config:      a.cfg.Edge, Env: childEnviron(a.environ), SpoolRoot: a.spoolRoot(), Key: key,
		Partitions: a.partitions(), Labels: ingest.CILabels(env), Version: version(),
		SyncInterval: a.syncInterval(), Log: log,
	}
}

// partitions is the number of event streams: the hub of this machine has one.
func (a *app) partitions() int {
	if a.cfg.Bus.URL == "" {
		return 1
	}
	return a.cfg.Partitions
}

// syncInterval is how long the store may keep acknowledged events in memory: the
// hub's own setting, or nats-server's default where the server is another's.
func (a *app) syncInterval() time.Duration {
	if a.cfg.Bus.URL != "" {
		return 2 * time.Minute
	}
	return natsd.DefaultSyncInterval
}

func (a *app) spoolRoot() string { return filepath.Join(a.cfg.StateDir, "spool") }

// tokenFile holds the secret that writes to the local relay need.
func (a *app) tokenFile() string { return filepath.Join(a.cfg.StateDir, "token") }

// secretFile reads a secret of this user, or makes it: 32 random bytes as hex in
// a file that nobody else can read. Of several processes that make it at once
// one wins and all return its secret.
func secretFile(name string) ([]byte, error) {
	for range 2 {
		b, err := os.ReadFile(name)
		if err == nil {
			if err := private(name); err != nil {
				return nil, err
			}
			if s := strings.TrimSpace(string(b)); len(s) >= 32 {
				return []byte(s), nil
			}
			return nil, fmt.Errorf("read %s: it is too short to be a secret; remove it", name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read secret: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return nil, fmt.Errorf("make secret: %w", err)
		}
		tmp, err := os.CreateTemp(filepath.Dir(name), ".secret-*")
		if err != nil {
			return nil, fmt.Errorf("make secret: %w", err)
		}
		_, err = fmt.Fprintf(tmp, "%x\n", randomKey())
		err = errors.Join(err, tmp.Close())
		if err == nil {
			// Link fails where another was first; its secret is read then.
			err = os.Link(tmp.Name(), name)
		}
		_ = os.Remove(tmp.Name())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make secret: %w", err)
		}
	}
	return nil, fmt.Errorf("make secret %s: it comes and goes", name)
}

// private reports an error unless a file or folder belongs to this user and nobody
// else can write to it; a file must not be readable for others either.
func private(name string) error {
	st, err := os.Stat(name)
	if err != nil {
		return err
	}
	forbidden := fs.FileMode(0o022)
	if st.Mode().IsRegular() {
		forbidden = 0o077
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(sys.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to user %d; remove it, or set CBCAST_STATE_DIR to a folder of yours", name, sys.Uid)
	case st.Mode()&forbidden != 0:
		return fmt.Errorf("%s is open to others (%s); chmod go-rwx it", name, st.Mode())
	}
	return nil
}

func randomKey() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

// logger is cbcast's own log: a file, a terminal, or nothing.
func (a *app) logger() (*slog.Logger, func(), error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.cfg.LogLevel)); err != nil {
		return nil, nil, &exitError{exitUsage, fmt.Errorf("CBCAST_LOG_LEVEL is %q; it must be debug, info, warn or error", a.cfg.LogLevel)}
	}
	opt := &slog.HandlerOptions{Level: level}
	if a.cfg.LogFile != "" {
		f, err := os.OpenFile(a.cfg.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			return slog.New(slog.NewJSONHandler(f, opt)), func() { _ = f.Close() }, nil
		}
		// The agent comes first: without its file the log goes where it would go.
		if terminal(a.io.err) {
			fmt.Fprintln(a.io.err, "cbcast: no log:", err)
		}
	}
	var w io.Writer = io.Discard
	if terminal(a.io.err) {
		w = a.io.err
	}
	return slog.New(slog.NewTextHandler(w, opt)), func() {}, nil
}
