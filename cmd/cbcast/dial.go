package main

import (
	"context"
	"net"

	"github.com/cbcast/cbcast/internal/natsd"
)

// lifetime is a way to the hub that ends with a context: an owner that is stopped
// would hold up who is leaving.
type lifetime struct {
	hub *natsd.Hub
	ctx context.Context
}

func (l lifetime) InProcessConn() (net.Conn, error) {
	type answer struct {
		c   net.Conn
		err error
	}
	got := make(chan answer, 1)
	go func() { // ends by the hub's own bound, 2 s
		c, err := l.hub.InProcessConn()
		got <- answer{c, err}
	}()
	select {
	case a := <-got:
		return a.c, a.err
	case <-l.ctx.Done():
		go func() { // ends with the one above
			if a := <-got; a.c != nil {
				_ = a.c.Close()
			}
		}()
		return nil, context.Cause(l.ctx)
	}
}
