package bus

import (
	"context"

	"github.com/cbcast/cbcast/internal/subject"
)

// Head is the stream sequence of the newest event of a partition, 0 without one.
func (b *Bus) Head(ctx context.Context, partition int) (uint64, error) {
	info, err := b.streamInfo(ctx, subject.EventStream(partition))
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// HeadLog is the stream sequence of the newest message of a log, 0 without one.
func (b *Bus) HeadLog(ctx context.Context, l Log) (uint64, error) {
	info, err := b.streamInfo(ctx, l.stream())
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}
