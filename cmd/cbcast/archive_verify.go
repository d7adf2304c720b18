package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/durable"
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
	c.Flags().BoolVar(&asJSON, "json", false, "print lines of JSON: each finding, and what was looked at")
	return c
}

func (a *app) archiveVerify(ctx context.Context, o segment.VerifyOptions, keys, heads []string, asJSON bool) error {
	p, err := a.openArchive(ctx)
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
	if errors.Is(err, segment.ErrNotFound) {
		return fmt.Errorf("no such tenant: %s is not in the archive %s", printable(o.Tenant), a.cfg.Archive.Dest)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = reportJSON(a.io.out, r)
	} else {
		a.printReport(r, len(o.Heads))
	}
	if err == nil && !r.OK() {
		return &exitError{exitTampered, nil}
	}
	return err
}

// reportJSON prints each finding on a line, and then what was looked at.
func reportJSON(w io.Writer, r *segment.Report) error {
	enc := json.NewEncoder(w)
	for i := range r.Findings {
		if err := enc.Encode(&r.Findings[i]); err != nil {
			return err
		}
	}
	sum := *r
	sum.Findings = nil
	return enc.Encode(struct {
		*segment.Report
		Findings *struct{} `json:"findings,omitempty"` // are the lines before
		OK       bool      `json:"ok"`
	}{Report: &sum, OK: r.OK()})
}

func publicKey(file string) (ed25519.PublicKey, error) {
	b, err := durable.ReadRegular(file, durable.MaxPEM)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &exitError{exitUsage, fmt.Errorf("no public key: %w; name it with --public-key", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return segment.ParsePublicKey(b)
}

// whereFound says what a finding is about, as far as it names something.
func whereFound(f *segment.Finding) string {
	var b strings.Builder
	say := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%s", name, printable(value))
		}
	}
	say("tenant", f.Tenant)
	if f.Number != 0 {
		fmt.Fprintf(&b, " head=%d", f.Number)
	}
	say("run", f.Run)
	say("object", f.Object)
	if f.First != 0 || f.Last != 0 {
		fmt.Fprintf(&b, " %d–%d", f.First, f.Last)
	}
	if f.Of != 0 {
		fmt.Fprintf(&b, " readable=%d/%d", f.Records, f.Of)
	}
	return b.String()
}

func (a *app) printReport(r *segment.Report, copies int) {
	for _, f := range r.Findings {
		mark := "note"
		if f.Bad {
			mark = "BAD "
		}
		fmt.Fprintf(a.io.out, "%s %s%s: %s\n", mark, f.Code, whereFound(&f), printable(f.Text))
	}
	word := "the archive is whole and unchanged"
	if copies == 0 {
		word += ", up to where it ends now"
	}
	if r.Tenants == 0 {
		word = "the archive is empty: nothing is sealed in it yet"
	}
	if !r.OK() {
		word = fmt.Sprintf("the archive is NOT as it was: %s", counted(r.Bad, "finding"))
	}
	fmt.Fprintf(a.io.out, "%s\n%s, %s, %s, %s, %s, %s; copies of heads compared: %d\n", word, counted(r.Tenants, "tenant"),
		counted(r.Heads, "head"), counted(r.Segments, "segment"), counted(r.Records, "record"), counted(r.Runs, "run"),
		counted(r.Bytes, "byte"), copies)
}
