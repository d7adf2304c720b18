package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
)

// SigningFile is the file of the signing key; dir is the archive's state directory.
func (c *Config) SigningFile(dir string) string {
	if c.SigningKeyFile != "" {
		return c.SigningKeyFile
	}
	return filepath.Join(dir, "signing.pem")
}

// PublicFile is where the public key of a signing key's file is written.
func PublicFile(signing string) string {
	ext := filepath.Ext(signing)
	return signing[:len(signing)-len(ext)] + ".pub" + ext
}

// key makes the signing key of an archive that begins, where none is configured.
func (s *Service) key(ctx context.Context) error {
	if s.o.SigningKey != "" || s.o.SigningKeyFile != "" {
		return nil
	}
	file := s.o.SigningFile(s.o.Dir)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have, err := segment.Signers(ctx, s.place.Store)
	if err != nil {
		return err
	}
	if len(have) > 0 {
		return fmt.Errorf("the archive at %s has a signing key that this machine has not: set CBCAST_ARCHIVE_SIGNING_KEY_FILE", s.o.Dest)
	}
	if err := NewKey(file); err != nil {
		return err
	}
	s.o.Log.Info("signing key made; keep a copy of the public one where the archive is verified", "file", file, "public", PublicFile(file))
	return nil
}

// NewKey makes a signing key's file, and that of its public key. It replaces none.
func NewKey(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s is there already", file)
	}
	private, public, err := segment.GenerateKey()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("signing key: %w", err)
	}
	if err := durable.WriteFile(PublicFile(file), public, 0o644); err != nil {
		return fmt.Errorf("public key: %w", err)
	}
	if err := durable.WriteFile(file, private, 0o600); err != nil {
		return fmt.Errorf("signing key: %w", err)
	}
	return nil
}
