package relay

import "time"

const (
	// maxParked bounds the mappings kept for the next page of who reads a long run page
	// by page, and parkedFor how long one is.
	maxParked = 16
	parkedFor = time.Minute
)

// A parked replay goes on behind its cursor. Without it each page of a run that the
// line does not hold would be mapped from the run's first event.
type parked struct {
	key   lineKey
	pos   uint64
	since time.Time
	*replay
}

// park keeps p for who goes on behind pos. The oldest go.
func (g *lines) park(key lineKey, pos uint64, p *replay) {
	p.put, p.look = nil, nil // they hold the answer
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = append(g.parked, parked{key, pos, time.Now(), p})
	for len(g.parked) > maxParked || time.Since(g.parked[0].since) > parkedFor {
		g.parked[0] = parked{}
		g.parked = g.parked[1:]
	}
}

// unpark returns a replay that goes on behind pos, nil without one.
func (g *lines) unpark(key lineKey, pos uint64) *replay {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, p := range g.parked {
		if p.key == key && p.pos == pos {
			g.parked = append(g.parked[:i:i], g.parked[i+1:]...)
			return p.replay
		}
	}
	return nil
}
