package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
)

func newArchiveKeygen(a *app) *cobra.Command {
	var out string
	var wrap bool
	c := &cobra.Command{
		Use:   "keygen",
		Short: "Make the key that signs an archive's heads, and its public key",
		Long: `keygen makes an Ed25519 key in two PEM files: FILE for CBCAST_ARCHIVE_SIGNING_KEY_FILE, and
the public key beside it, which is all that verify needs: keep it where the archive's
keepers cannot change it. With --wrap it makes a key for CBCAST_ARCHIVE_KEYS_WRAP_FILE instead,
which encrypts the keys of runs. No file is replaced.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if wrap {
				return a.keygenWrap(out)
			}
			if out == "" {
				out = a.cfg.Archive.SigningFile(a.archiveDir())
			}
			if err := archive.NewKey(out); err != nil {
				return err
			}
			fmt.Fprintf(a.io.out, "signing key %s\npublic key  %s\n", out, archive.PublicFile(out))
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "", "the file to write (default: that of the configuration)")
	c.Flags().BoolVar(&wrap, "wrap", false, "make a key that keys of runs are encrypted with")
	return c
}

func (a *app) keygenWrap(out string) error {
	if out == "" {
		if out = a.cfg.Archive.WrapFile; out == "" {
			out = filepath.Join(a.archiveDir(), "wrap.key")
		}
	}
	if err := newWrapKey(out); err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "wrapping key %s: without it nobody reads what is archived with it\n", out)
	return nil
}

// newWrapKey makes the file of a key that encrypts keys of runs. It replaces none.
func newWrapKey(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s is there already", file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	return durable.WriteFile(file, []byte(hex.EncodeToString(key)+"\n"), 0o600)
}

func newArchiveRotate(a *app) *cobra.Command {
	var by string
	c := &cobra.Command{
		Use:   "rotate-key",
		Short: "Make a new signing key, signed by the one so far",
		Long: `rotate-key makes a new signing key, has the archive's newest one sign it, and puts it
into the file of the configuration; the old key stays beside it. An archive that runs
takes it from the file by itself. Who verifies goes on with the public key they have: the
new one is found from it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.rotateKey(c.Context(), by) },
	}
	c.Flags().StringVar(&by, "by", me(), "who does it, for the record")
	return c
}

func (a *app) rotateKey(ctx context.Context, by string) error {
	if err := a.cfg.Archive.Check(); err != nil {
		return &exitError{exitUsage, err}
	}
	s, err := archive.Rotate(ctx, &a.cfg.Archive, a.archiveDir(), by)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "signing key %d of the archive: %s, in %s\n", s.Number, segment.KeyID(s.Public()),
		a.cfg.Archive.SigningFile(a.archiveDir()))
	return nil
}
