package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/segment"
)

// exitTampered is verify's where an archive is not what its heads say.
const exitTampered = 6

func newArchiveVerify(a *app) *cobra.Command {
	var keys, heads []string
	var o segment.VerifyOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Prove that an archive is whole and unchanged, offline",
		Long: `verify reads every segment and checks it against the chain of signed heads: what was
changed, is missing, was reordered or cut, and where a run's numbers have a hole. It
needs the archive and the public key, nothing else. A chain whose end was cut off looks
whole by itself: with --heads it is compared with the copies in a second place.

It exits with 0 when all is well, 6 when something is not, 1 when it could not look.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.archiveVerify(c.Context(), o, keys, heads, asJSON) },
	}
	c.Flags().StringSliceVar(&keys, "public-key", nil, "PEM file of the archive's first public key, or a later one\n(default: that beside the signing key)")
	c.Flags().StringSliceVar(&heads, "heads", nil, "copies of heads: a file, a directory or s3://bucket/prefix")
	c.Flags().StringVar(&o.Tenant, "tenant", "", "only this tenant")
	c.Flags().BoolVar(&o.Deep, "deep", false, "decrypt and read every record, too: needs the keys of the runs")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) archiveVerify(ctx context.Context, o segment.VerifyOptions, keys, heads []string, asJSON bool) error {
	p, err := a.openArchive()
	if err != nil {
		return err
	}
	o.Store = p.Store
	if o.Deep {
		o.Keys, o.Wrap = p.Keys, p.Wrap
	}
	if len(keys) == 0 {
		keys = []string{archive.PublicFile(a.cfg.Archive.SigningFile(a.archiveDir()))}
	}
	for _, file := range keys {
		k, err := publicKey(file)
		if err != nil {
			return err
		}
		o.Trust = append(o.Trust, k)
	}
	for _, from := range heads {
		h, err := a.cfg.Archive.LoadHeads(ctx, from)
		if err != nil {
			return err
		}
		o.Heads = append(o.Heads, h...)
	}
	r, err := segment.Verify(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(a.io.out).Encode(r)
	} else {
		a.printReport(r, len(o.Heads))
	}
	if err == nil && !r.OK() {
		return &exitError{exitTampered, nil}
	}
	return err
}

func publicKey(file string) (ed25519.PublicKey, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &exitError{exitUsage, fmt.Errorf("no public key: %w; name it with --public-key", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return segment.ParsePublicKey(b)
}

func (a *app) printReport(r *segment.Report, copies int) {
	for _, f := range r.Findings {
		mark := "note"
		if f.Bad {
			mark = "BAD "
		}
		fmt.Fprintf(a.io.out, "%s %s: %s\n", mark, f.Code, printable(f.Text))
	}
	word := "the archive is whole and unchanged"
	if copies == 0 {
		word += ", up to where it ends now"
	}
	if !r.OK() {
		word = fmt.Sprintf("the archive is NOT as it was: %d findings", r.Bad)
	}
	fmt.Fprintf(a.io.out, "%s\n%d tenants, %d heads, %d segments, %d records, %d runs, %d bytes; %d copies of heads compared\n",
		word, r.Tenants, r.Heads, r.Segments, r.Records, r.Runs, r.Bytes, copies)
}
