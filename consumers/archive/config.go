// Package archive keeps every message of the bus: the events of all runs, the facts
// that relays state and the commands, with their headers and exact bytes. It reads
// them as a durable consumer, has package segment seal them, and acks what is sealed.
//
// Around that it offers what a keeper of records needs: a catalogue of runs by
// repository and by who decided, retention, legal holds, erasure, copies of the heads
// in a second place, and export.
package archive

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/segment/s3"
)

// Config says where an archive is and how it is kept. The tags name environment
// variables, which only cmd reads, with the prefix CBCAST_ARCHIVE_.
type Config struct {
	// Dest is a directory or s3://bucket/prefix. "" is no archive.
	Dest string `env:"DEST"`
	// Keys is where the keys of runs and the catalogue are: a directory or
	// s3://bucket/prefix, of which no old versions may be kept, or what was erased is
	// not. "" is Dest.
	Keys string `env:"KEYS"`
	// Wrap is 32 bytes in hex that the keys of runs are encrypted with, or a file of it.
	Wrap     string `env:"KEYS_WRAP"`
	WrapFile string `env:"KEYS_WRAP_FILE"`

	// SigningKey is the PEM text of the key that signs heads, or a file of it, read
	// again before each seal. Without either it is signing.pem in the archive's state
	// directory, made where an archive begins.
	SigningKey     string `env:"SIGNING_KEY"`
	SigningKeyFile string `env:"SIGNING_KEY_FILE"`

	// Heads is a second place for the heads: a file, s3://bucket/prefix or a URL to
	// post them to. HeadsBehind is how many may wait for it before nothing is sealed.
	Heads          string `env:"HEADS"`
	HeadsToken     string `env:"HEADS_TOKEN"`
	HeadsTokenFile string `env:"HEADS_TOKEN_FILE"`
	HeadsBehind    int    `env:"HEADS_BEHIND" envDefault:"1000"`

	// A segment is sealed when it has so many bytes, is open for so long, or its UTC
	// day is over; earlier where the bus gives no more before something is acked.
	SealBytes int           `env:"SEAL_BYTES" envDefault:"67108864"`
	SealAge   time.Duration `env:"SEAL_AGE" envDefault:"1m"`
	// OpenSegments and Memory bound what is open at a time, over all tenants.
	OpenSegments int `env:"OPEN_SEGMENTS" envDefault:"1024"`
	Memory       int `env:"MEMORY" envDefault:"33554432"`
	// Window is how many messages of a log may be read and not sealed.
	Window int `env:"WINDOW" envDefault:"50000"`

	// Retention lists how long segments are kept, by tenant: acme=720h,*=8760h. Who is
	// not in it, and no "*", is kept for ever.
	Retention string `env:"RETENTION"`

	// Addr is where health and metrics are served when the archive runs on its own.
	Addr string `env:"ADDR" envDefault:"127.0.0.1:8423"`

	S3 s3.Config `envPrefix:"S3_"`
}

// minSealAge and maxSealAge bound Config.SealAge: the bus gives again by itself what is
// not acked after half an hour.
const (
	minSealAge = 100 * time.Millisecond
	maxSealAge = 15 * time.Minute
)

// Check says what of a configuration cannot be.
func (c *Config) Check() error {
	var errs []error
	if c.Dest == "" {
		errs = append(errs, errors.New("CBCAST_ARCHIVE_DEST is not set: a directory, or s3://bucket/prefix"))
	}
	if c.SealAge < minSealAge || c.SealAge > maxSealAge {
		errs = append(errs, fmt.Errorf("CBCAST_ARCHIVE_SEAL_AGE is %v; it must be from %v to %v", c.SealAge, minSealAge, maxSealAge))
	}
	if c.SealBytes < 1<<10 || c.SealBytes > 4<<30 {
		errs = append(errs, fmt.Errorf("CBCAST_ARCHIVE_SEAL_BYTES is %d; it must be from 1024 to 4294967296", c.SealBytes))
	}
	if c.HeadsBehind < 1 {
		errs = append(errs, errors.New("CBCAST_ARCHIVE_HEADS_BEHIND must be at least 1"))
	}
	if _, err := parseRetention(c.Retention); err != nil {
		errs = append(errs, err)
	}
	for _, p := range []struct{ name, value, file string }{
		{"KEYS_WRAP", c.Wrap, c.WrapFile}, {"SIGNING_KEY", c.SigningKey, c.SigningKeyFile}, {"HEADS_TOKEN", c.HeadsToken, c.HeadsTokenFile},
	} {
		if p.value != "" && p.file != "" {
			errs = append(errs, fmt.Errorf("CBCAST_ARCHIVE_%s and CBCAST_ARCHIVE_%[1]s_FILE: only one of them may be set", p.name))
		}
	}
	return errors.Join(errs...)
}

// secret is a value, or what a file holds.
func secret(name, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	b, err := durable.ReadRegular(file, durable.MaxPEM)
	if err != nil {
		return "", fmt.Errorf("CBCAST_ARCHIVE_%s_FILE: %w", name, err)
	}
	if value = strings.TrimSpace(string(b)); value == "" {
		return "", fmt.Errorf("CBCAST_ARCHIVE_%s_FILE: %s is empty", name, file)
	}
	return value, nil
}

// wrap is the key that keys are wrapped with, nil for none.
func (c *Config) wrap() ([]byte, error) {
	s, err := secret("KEYS_WRAP", c.Wrap, c.WrapFile)
	if err != nil || s == "" {
		return nil, err
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 32 {
		return nil, errors.New("CBCAST_ARCHIVE_KEYS_WRAP is not 32 bytes in hex; cbcast archive keygen --wrap makes them")
	}
	return b, nil
}

// openStore opens a directory or a bucket.
func (c *Config) openStore(dest string) (segment.Store, error) {
	if !strings.HasPrefix(dest, "s3://") {
		if strings.Contains(dest, "://") || strings.HasPrefix(dest, "s3:") {
			return nil, errors.New("an archive is a directory or s3://bucket/prefix")
		}
		return segment.OpenDir(dest)
	}
	bucket, prefix, err := s3.Parse(dest)
	if err != nil {
		return nil, err
	}
	cfg := c.S3
	cfg.Bucket, cfg.Prefix = bucket, prefix
	return s3.New(cfg)
}

// A Place is an archive to read: its stores, opened.
type Place struct {
	Store, Keys segment.Store
	Wrap        []byte
}

// Open opens the stores of an archive. It asks no server and creates nothing.
func (c *Config) Open() (p Place, err error) {
	if p.Wrap, err = c.wrap(); err != nil {
		return p, err
	}
	if p.Store, err = c.openStore(c.Dest); err != nil {
		return p, fmt.Errorf("CBCAST_ARCHIVE_DEST: %w", err)
	}
	p.Keys = p.Store
	if c.Keys != "" && c.Keys != c.Dest {
		if p.Keys, err = c.openStore(c.Keys); err != nil {
			return p, fmt.Errorf("CBCAST_ARCHIVE_KEYS: %w", err)
		}
	}
	return p, nil
}

// OpenExisting is [Config.Open] for an archive that is there; where it is not, or cannot be
// read, the error says where it was looked for.
func (c *Config) OpenExisting(ctx context.Context) (Place, error) {
	p, err := c.Open()
	if err != nil {
		return p, err
	}
	err = segment.Exists(ctx, p.Store)
	if errors.Is(err, segment.ErrNoArchive) {
		// One whose list of keys was cut still has tenants: what reads it says what it finds.
		if tenants, terr := segment.Tenants(ctx, p.Store); terr == nil && len(tenants) > 0 {
			return p, nil
		}
		return p, c.noArchive()
	}
	if err != nil {
		return p, fmt.Errorf("archive at %s: %w", c.Dest, err)
	}
	return p, nil
}

// noArchive is ErrNoArchive with the place.
func (c *Config) noArchive() error { return fmt.Errorf("%w at %s", segment.ErrNoArchive, c.Dest) }

// Reader reads the archive.
func (p Place) Reader() *segment.Reader {
	return segment.NewReader(segment.ReaderOptions{Store: p.Store, Keys: p.Keys, Wrap: p.Wrap})
}
