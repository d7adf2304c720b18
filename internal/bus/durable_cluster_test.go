package bus_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// cluster starts three servers and returns a connection to each.
func cluster(tb testing.TB) []*bus.Bus {
	tb.Helper()
	var ports []int
	var routes []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		routes = append(routes, "nats://127.0.0.1:"+strconv.Itoa(ports[len(ports)-1]))
		_ = ln.Close()
	}
	var all []*bus.Bus
	for i, p := range ports {
		s := serve(tb, natsd.Options{Name: "n" + strconv.Itoa(i), Cluster: &natsd.Cluster{Name: "c", Port: p, Routes: routes}})
		all = append(all, connect(tb, bus.Config{URL: s.ClientURL()}))
	}
	top := topology
	top.Replicas = 3
	waitFor(tb, func() bool {
		drift, err := all[0].Ensure(tb.Context(), top)
		return err == nil && len(drift) == 0
	})
	return all
}

// The consumer's and the stream's leaders change while messages are read: none is left
// out, and none comes behind a younger one.
func TestDurableLeaderChange(t *testing.T) {
	const n = 4000
	all := cluster(t)
	publish(t, all[0], "r1", newMemory(evs("r1", n)...).end())
	r := readDurable(t, all[1], bus.DurableConfig{Window: 200})
	next := uint64(1)
	var back int
	for k := 0; next <= n; k++ {
		d := r.take(t, 1)[0]
		switch {
		case d.At.Seq > next:
			t.Fatalf("%d comes where %d should", d.At.Seq, next)
		case d.At.Seq < next:
			back++
		default:
			next++
		}
		if k%50 == 49 {
			r.Ack(d.At)
		}
		if k%1000 == 500 {
			api := "CONSUMER.LEADER.STEPDOWN.EV_0.cbcast-test"
			if k > 2000 {
				api = "STREAM.LEADER.STEPDOWN.EV_0"
			}
			// One that is under way answers with an error.
			if _, err := all[0].Conn().Request("$JS.API."+api, nil, 10*time.Second); err != nil {
				t.Log(err)
			}
		}
	}
	r.settle(t, bus.Place{Seq: n})
	if st := r.Status(); st.Rebuilt > 0 || st.Missed > 0 {
		t.Errorf("status %+v", st)
	}
	t.Logf("%d given again; %+v", back, r.Status())
}
