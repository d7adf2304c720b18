package segment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cbcast/cbcast/internal/subject"
)

// verifyKeys looks at every object among the keys: at pages that no head names, which no segment
// leads to, and for copies of keys that were erased.
func (v *verifier) verifyKeys(ctx context.Context, chains []*verifyChain) error {
	byToken := map[string]*verifyChain{}
	for _, c := range chains {
		byToken[c.token] = c
	}
	prefix := pagesPrefix
	if v.o.Tenant != "" {
		prefix = pagePrefix(v.o.Tenant)
	}
	for info, err := range v.o.Keys.List(ctx, prefix) {
		if err != nil {
			return err
		}
		b, err := readObject(ctx, v.o.Keys, info.Key, maxPage)
		if isNotExist(err) {
			continue // it went meanwhile
		}
		if err != nil && !errors.Is(err, errDamaged) {
			return err
		}
		token, _, _ := strings.Cut(strings.TrimPrefix(info.Key, pagesPrefix), "/")
		c := byToken[token]
		if c == nil { // a tenant of which nothing else is left
			c = &verifyChain{verifier: v, token: token, tenant: token}
		}
		c.keysObject(info.Key, b, byToken)
	}
	d, ok := v.o.Keys.(*Dir)
	if !ok {
		return nil
	}
	return v.verifyTemp(d, byToken)
}

// verifyTemp looks for keys that were erased in what a crash left of pages that were being written.
func (v *verifier) verifyTemp(d *Dir, byToken map[string]*verifyChain) error {
	entries, err := os.ReadDir(filepath.Join(d.root, tempDir))
	if err != nil && !isNotExist(err) {
		return fmt.Errorf("%s: %w", tempDir, cause(err))
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxPage {
			continue // it went meanwhile, or is no page
		}
		b, err := os.ReadFile(filepath.Join(d.root, tempDir, e.Name()))
		if err != nil {
			continue // so here
		}
		if p, err := parsePage(b, v.o.Wrap); err == nil {
			if c := byToken[subject.Token(p.tenant)]; c != nil {
				c.survivors(tempDir+"/"+e.Name(), p)
			}
		}
	}
	return nil
}

// keysObject checks one object among a tenant's keys.
func (c *verifyChain) keysObject(key string, b []byte, byToken map[string]*verifyChain) {
	uid, named := pageUID(c.tenant, key)
	n := c.uids[uid]
	p, err := parsePage(b, c.o.Wrap)
	switch {
	case err != nil && named && n != 0:
		return // told where its segment was looked at
	case err != nil:
		c.note(Finding{Code: StrayObject, Object: key, Text: "it is no page of keys"})
		return
	case fmt.Sprintf("%x", p.uid) != uid || p.tenant != c.tenant || !named:
		c.note(Finding{Code: StrayObject, Object: key, Text: fmt.Sprintf("it is a page of keys of segment %x of tenant %q", p.uid, p.tenant)})
	case n == 0:
		c.note(Finding{Code: Unclaimed, Object: key, Text: "no head names the segment of these keys: a crash left them, or its head is gone"})
	case c.gone[n] != 0:
		c.note(Finding{Code: Unfinished, Number: n, Object: key, Text: fmt.Sprintf("head %d says it is deleted; its keys are still there", c.gone[n])})
	}
	if of := byToken[subject.Token(p.tenant)]; of != nil {
		of.survivors(key, p)
	}
}

// survivors says which keys of erased runs a page still has.
func (c *verifyChain) survivors(key string, p *page) {
	for i := range p.keys {
		if e := &p.keys[i]; c.erased[e.run] != 0 && !e.erased {
			c.bad(Finding{
				Code: KeySurvives, Number: c.uids[fmt.Sprintf("%x", p.uid)], Object: key, Run: e.run,
				Text: "the run was erased, and its key is still there",
			})
		}
	}
}
