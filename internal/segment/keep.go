package segment

import (
	"context"
	"errors"
	"time"
)

// Erase destroys the keys of a run: the fact gets into the chain first, then the keys
// go. It returns ErrHeld under a hold. Records of the run that come later are kept
// erased. A second call finishes what a first one could not.
func (a *Archive) Erase(ctx context.Context, tenant, run, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Retain deletes a tenant's segments whose last record was stored before a time,
// except those with a held run. The fact gets into the chain first. It returns nil
// where there was nothing to delete.
func (a *Archive) Retain(ctx context.Context, tenant string, before time.Time, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Hold forbids Erase and Retain for a run, or a whole tenant where run is "", until
// Release. id names the hold; several may be on one run.
func (a *Archive) Hold(ctx context.Context, tenant, run, id, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Release ends a hold.
func (a *Archive) Release(ctx context.Context, tenant, id, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}
