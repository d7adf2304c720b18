package sink

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

const (
	// maxKeys and keyAge bound the keys of buttons that are kept. A button whose key
	// is kept no more is answered that it is too old.
	maxKeys = 20_000
	keyAge  = 30 * 24 * time.Hour

	// keyRest is how long a key that was used stands for its ask. An ask that is as
	// open as before then was not reached by the answer, and gets a new one.
	keyRest = time.Minute
)

// A grantKey is what a button's value stands for: one act on one ask of one run, as
// it was asked. Who posts a value that is none of these gets nothing.
type grantKey struct {
	Key    string    `json:"key"`
	Tenant string    `json:"tenant,omitempty"`
	Run    string    `json:"run"`
	Ask    string    `json:"ask,omitempty"`
	Act    string    `json:"act"`
	Hash   string    `json:"hash,omitempty"`  // of what is asked
	Input  string    `json:"input,omitempty"` // of the tool's input alone
	Turn   int       `json:"turn,omitempty"`
	At     time.Time `json:"at"`
	Used   *keyUse   `json:"used,omitempty"`
}

// A keyUse says what a click did.
type keyUse struct {
	Who     string    `json:"who"` // team/user
	At      time.Time `json:"at"`
	Reply   string    `json:"reply"` // what was told, without escapes
	Command string    `json:"command,omitempty"`
}

// keys are the buttons' keys of one destination, on disk: an append-only file of JSON
// lines, the later line of a key counts. Methods are safe for concurrent use.
type keys struct {
	mu     sync.Mutex // guards the rest
	dir    string
	secret []byte
	file   *os.File
	lines  int
	byKey  map[string]*grantKey
	order  []string // the oldest first
	busy   map[string]bool
}

// openKeys reads the keys in dir, which is made. A line that a crash cut is dropped.
func openKeys(dir string) (*keys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of buttons: %w", err)
	}
	k := &keys{dir: dir, byKey: map[string]*grantKey{}, busy: map[string]bool{}}
	var err error
	if k.secret, err = keySecret(filepath.Join(dir, "secret")); err != nil {
		return nil, fmt.Errorf("secret of buttons: %w", err)
	}
	if err := k.read(); err != nil {
		return nil, fmt.Errorf("read the buttons: %w", err)
	}
	if err := k.compact(); err != nil {
		return nil, fmt.Errorf("write the buttons: %w", err)
	}
	return k, nil
}

func keySecret(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err == nil && len(b) == sha256.Size {
		return b, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b = make([]byte, sha256.Size)
	_, _ = rand.Read(b) // never fails
	return b, durable.WriteFile(name, b, 0o600)
}

func (k *keys) name() string { return filepath.Join(k.dir, "buttons.ndjson") }

func (k *keys) read() error {
	data, err := os.ReadFile(k.name())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		var g grantKey
		if json.Unmarshal(line, &g) == nil && g.Key != "" && time.Since(g.At) < keyAge {
			k.put(&g)
		}
	}
	return nil
}

func (k *keys) put(g *grantKey) {
	if k.byKey[g.Key] == nil {
		k.order = append(k.order, g.Key)
	}
	k.byKey[g.Key] = g
	for len(k.order) > maxKeys {
		delete(k.byKey, k.order[0])
		k.order = k.order[1:]
	}
}

// compact writes what counts into a new file.
func (k *keys) compact() error {
	var b bytes.Buffer
	for _, key := range k.order {
		line, err := json.Marshal(k.byKey[key])
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	if err := durable.WriteFile(k.name(), b.Bytes(), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(k.name(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if k.file != nil {
		k.file.Close()
	}
	k.file, k.lines = f, len(k.order)
	return nil
}

// save makes keys durable.
func (k *keys) save(list ...*grantKey) error {
	if k.file == nil {
		return fs.ErrClosed
	}
	w := bufio.NewWriter(k.file)
	for _, g := range list {
		line, err := json.Marshal(g)
		if err != nil {
			return err
		}
		_, _ = w.Write(append(line, '\n')) // Flush has the error
		k.put(g)
		k.lines++
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := k.file.Sync(); err != nil {
		return err
	}
	if k.lines > 4*maxKeys {
		return k.compact()
	}
	return nil
}

// mint returns the keys of what is wanted; a key that is there already is the same.
// It is durable before a message can show it.
func (k *keys) mint(want ...*grantKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var fresh []*grantKey
	for _, g := range want {
		for gen := 0; ; gen++ {
			g.Key = k.key(g, gen)
			have := k.byKey[g.Key]
			if have == nil {
				g.At = time.Now().UTC()
				fresh = append(fresh, g)
				break
			}
			if have.Used == nil || time.Since(have.Used.At) < keyRest {
				break
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return k.save(fresh...)
}

func (k *keys) key(g *grantKey, gen int) string {
	h := hmac.New(sha256.New, k.secret)
	for _, part := range []string{g.Tenant, g.Run, g.Ask, g.Act, g.Hash, strconv.Itoa(g.Turn), strconv.Itoa(gen)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// find returns what a value stands for, false for one that is none of ours.
func (k *keys) find(key string) (grantKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.byKey[key]
	if g == nil {
		return grantKey{}, false
	}
	return *g, true
}

// take begins the use of a key: it is used once. It is false where it was, or where
// another click is at it. The one who takes it calls used or release.
func (k *keys) take(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.byKey[key]
	if g == nil || g.Used != nil || k.busy[key] {
		return false
	}
	k.busy[key] = true
	return true
}

// release ends a use that did nothing.
func (k *keys) release(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, key)
}

// used says what a key did. An error is that it is not on disk: after a crash it could
// be used again, and then the relay says what stands.
func (k *keys) used(key string, u keyUse) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, key)
	g := k.byKey[key]
	if g == nil {
		return nil
	}
	next := *g
	next.Used = &u
	return k.save(&next)
}

// decided says what was clicked for an ask as it is asked now, nil for nothing.
func (k *keys) decided(run, ask, hash string) *keyUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.order) - 1; i >= 0; i-- {
		g := k.byKey[k.order[i]]
		if g.Run == run && g.Ask == ask && g.Hash == hash && g.Used != nil && time.Since(g.Used.At) < keyRest {
			return g.Used
		}
	}
	return nil
}

// forget takes a run's keys out of the file: its buttons are answered that they are not
// known.
func (k *keys) forget(tenant, run string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = slices.DeleteFunc(k.order, func(key string) bool {
		g := k.byKey[key]
		if g.Run != run || g.Tenant != tenant {
			return false
		}
		delete(k.byKey, key)
		delete(k.busy, key)
		return true
	})
	if k.file == nil {
		return fs.ErrClosed
	}
	return k.compact()
}

// ForgetButtons takes a run out of a directory of buttons that nobody uses.
func ForgetButtons(dir, tenant, run string) error {
	k, err := openKeys(dir)
	if err != nil {
		return err
	}
	return errors.Join(k.forget(tenant, run), k.close())
}

func (k *keys) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file = nil
	return err
}
