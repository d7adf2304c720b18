package bus

import (
	"context"
	"errors"
)

// ErrNoLog is what an [ErrUnavailable] also is where the server has no such stream. It may
// have been deleted for good, or is made anew.
var ErrNoLog = errors.New("no such log")

// First is the first sequence that a log still has; of an empty one it is that of the next
// message. The leader answers.
func (b *Bus) First(ctx context.Context, l Log) (uint64, error) {
	info, err := b.streamInfo(ctx, l.stream())
	if err != nil {
		return 0, err
	}
	return info.State.FirstSeq, nil
}
