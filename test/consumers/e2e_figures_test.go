package consumers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/cbcast/cbcast/consumers/metrics/trace"
	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment/s3"
	"github.com/cbcast/cbcast/test/capture"
)

// traced checks that the collector has passed on every span that the recordings make, by
// name and by the parent's, in the trace of the CI job.
func (c *cast) traced() {
	c.t.Helper()
	want := map[string]int{}
	for i, v := range c.shows {
		list := capture.Events(v.c, "acme", v.id)
		if !v.rest {
			list[0].TraceParent = traceOf(i)
		}
		b := trace.NewBuilder(v.id, trace.BuilderOptions{})
		var spans []trace.Span
		names := map[string]string{}
		for _, e := range list {
			for _, s := range b.Apply(e) {
				spans, names[string(s.ID[:])] = append(spans, s), s.Name
			}
		}
		names[ciSpan], names[string(make([]byte, 8))] = "the CI job", "none"
		for _, s := range spans {
			want[fmt.Sprintf("%x %s below %s", s.Context.Trace[:], s.Name, names[string(s.Parent[:])])]++
		}
	}
	c.caughtUp("cbcast-trace", "EV_0", "CTL")
	c.spans.mu.Lock()
	defer c.spans.mu.Unlock()
	names, got := map[string]string{ciSpan: "the CI job", "": "none"}, map[string]int{}
	for _, s := range c.spans.spans {
		names[string(s.SpanId)] = s.Name
	}
	for _, s := range c.spans.spans {
		got[fmt.Sprintf("%x %s below %s", s.TraceId, s.Name, names[string(s.ParentSpanId)])]++
	}
	if d := cmp.Diff(want, got); d != "" {
		c.t.Errorf("spans (-want +got):\n%s", d)
	}
}

// kept checks what the archive has of each run, and returns the ids of its events.
func (c *cast) kept() map[string][]string {
	c.t.Helper()
	ids := map[string][]string{}
	env := c.env("archive", c.keep...)
	var events bytes.Buffer
	for _, v := range c.shows {
		out := c.run(env, "archive", "export", v.id, "--format", "cloudevents")
		events.WriteString(out)
		for l := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
			var e struct{ ID string }
			if err := json.Unmarshal([]byte(l), &e); err != nil {
				c.t.Fatal(err)
			}
			ids[v.id] = append(ids[v.id], e.ID)
		}
		c.parquet(env, v, len(ids[v.id]))
	}
	if err := os.WriteFile(filepath.Join(c.dir, "events.ndjson"), events.Bytes(), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.duckdb(ids)
	return ids
}

// A row is what is read of a Parquet file.
type row struct {
	Log      string  `parquet:"log"`
	Stream   *string `parquet:"stream,optional"`
	Cut      bool    `parquet:"cut"`
	JSON     *string `parquet:"json,optional"`
	Data     []byte  `parquet:"data,optional"`
	Redacted []struct {
		Offset int64 `parquet:"offset"`
		Length int64 `parquet:"length"`
		Raw    int64 `parquet:"raw_length"`
	} `parquet:"redacted,list"`
}

// output makes an agent's output from rows, and says where it is masked.
func output(rows []row) (out []byte, spans []event.Span) {
	for _, r := range rows {
		if r.Stream == nil || *r.Stream != "out" || r.Log != "EV_0" {
			continue
		}
		for _, s := range r.Redacted {
			spans = append(spans, event.Span{Off: len(out) + int(s.Offset), Len: int(s.Length), RawLen: int(s.Raw)})
		}
		if out = append(out, r.Data...); r.JSON != nil {
			out = append(out, *r.JSON...)
		}
		if !r.Cut {
			out = append(out, '\n')
		}
	}
	return out, spans
}

// parquet has a run exported and read back. What archive cat prints is in it; all that is
// not masked is as the agent wrote it, byte for byte.
func (c *cast) parquet(env []string, v *show, n int) {
	c.t.Helper()
	file := filepath.Join(c.dir, v.id+".parquet")
	c.run(env, "archive", "export", v.id, "--format", "parquet", "-o", file)
	rows, err := parquet.ReadFile[row](file)
	if err != nil {
		c.t.Fatal(err)
	}
	out, spans := output(rows)
	if len(rows) != n || !redact.Matches(v.c.Stdout, out, spans) {
		c.t.Errorf("%s: %d rows of Parquet, want %d; they hold %d bytes of output, want %d but for %v", v.name, len(rows), n, len(out), len(v.c.Stdout), spans)
	}
	if got := c.run(env, "archive", "cat", v.id); got != string(out) {
		c.t.Errorf("%s: archive cat prints %d bytes, Parquet has %d", v.name, len(got), len(out))
	}
	var l struct{ Masked map[string]int64 }
	if err := json.Unmarshal([]byte(c.run(env, "archive", "show", v.id, "--json")), &l); err != nil {
		c.t.Fatal(err)
	}
	var listed int64
	for _, n := range l.Masked {
		listed += n
	}
	if listed < int64(len(spans)) || len(spans) == 0 && bytes.Contains(v.c.Stdout, []byte(`"account":`)) {
		c.t.Errorf("%s: %v is listed as masked, %d places are", v.name, l.Masked, len(spans))
	}
}

// duckdb counts the rows of all Parquet files by run, and the logs that they are of.
func (c *cast) duckdb(ids map[string][]string) {
	c.t.Helper()
	query := fmt.Sprintf("SELECT run, count(*), string_agg(DISTINCT log, ' ' ORDER BY log) FROM '%s/*.parquet' GROUP BY run ORDER BY run", c.dir)
	cmd := exec.CommandContext(c.t.Context(), s3Tool(c.t, "python/bin/python"), "-c", "import duckdb, sys\nfor r in duckdb.execute(sys.argv[1]).fetchall(): print(*r)", query)
	cmd.Env = append(os.Environ(), "HOME="+c.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	var want []string
	for _, v := range c.shows {
		logs := "EV_0"
		if v.asks == "chat" || v.asks == "socket" {
			logs = "CMD CTL EV_0"
		}
		want = append(want, fmt.Sprint(v.id, " ", len(ids[v.id]), " ", logs))
	}
	if d := cmp.Diff(want, strings.Split(strings.TrimSpace(string(out)), "\n")); d != "" {
		c.t.Errorf("DuckDB (-want +got):\n%s", d)
	}
}

// counters are the series that count what happened to runs, in the text form of metrics.
func counters(text string) map[string]float64 {
	m := map[string]float64{}
	for l := range strings.SplitSeq(text, "\n") {
		i := strings.LastIndexByte(l, ' ')
		family, _, _ := strings.Cut(l, "{")
		family, _, _ = strings.Cut(family, " ")
		if i < 0 || !counts(family) {
			continue
		}
		m[l[:i]], _ = strconv.ParseFloat(l[i+1:], 64)
	}
	return m
}

func counts(family string) bool {
	return strings.HasPrefix(family, "cbcast_") && (strings.HasSuffix(family, "_total") || strings.HasSuffix(family, "_count")) &&
		!strings.Contains(family, "_consumer_") && !strings.HasPrefix(family, "cbcast_metrics_") && !strings.HasPrefix(family, "cbcast_trace_") &&
		family != "cbcast_events_repeated_total" // what came again, to this process
}

// counted checks that Prometheus has the counts that a recount of the bus makes, and one
// of what the archive exports.
func (c *cast) counted(map[string][]string) {
	c.t.Helper()
	env := []string{"CBCAST_METRICS_REPOS=acme/shop"}
	want := counters(c.run(c.onBus("recount", env...), "metrics", "--once"))
	if d := cmp.Diff(want, counters(c.run(c.env("recount", env...), "metrics", "--once", "--from", filepath.Join(c.dir, "events.ndjson")))); d != "" {
		c.t.Errorf("counts of the archive (-bus +archive):\n%s", d)
	}
	if n := len(want); n < 40 {
		c.t.Errorf("only %d series", n)
	}
	c.t.Logf("%d series of counters", len(want))
	p := startPrometheus(c.t, strings.TrimPrefix(c.metrics.addr, "http://"), "exemplar-storage")
	var got map[string]float64
	for end := time.Now().Add(long / 2); !maps.Equal(got, want) && time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		points, err := p.query(`{__name__=~"cbcast_.*(_total|_count)", job="cbcast"}`)
		if err != nil {
			c.t.Fatal(err)
		}
		got = map[string]float64{}
		for _, x := range points {
			if family := x.Metric["__name__"]; counts(family) {
				var labels []string
				for _, k := range slices.Sorted(maps.Keys(x.Metric)) {
					if k != "__name__" && k != "job" && k != "instance" {
						labels = append(labels, fmt.Sprintf("%s=%q", k, x.Metric[k]))
					}
				}
				if len(labels) > 0 {
					family += "{" + strings.Join(labels, ",") + "}"
				}
				got[family], _ = strconv.ParseFloat(x.value(), 64)
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		c.t.Errorf("counts of Prometheus (-recount +Prometheus):\n%s", d)
	}
	verdicts := map[string]float64{}
	for _, v := range c.shows {
		verdicts[v.verdict()]++
	}
	for verdict, n := range verdicts {
		p.is(fmt.Sprintf("sum(cbcast_runs_finished_total{verdict=%q})", verdict), fmt.Sprint(n))
	}
}

// proven checks the archive with its public key and the copies of its heads, without a
// bus, what it says of who decided, and that nothing of it can be written twice.
func (c *cast) proven() {
	c.t.Helper()
	env := c.env("reader", c.keep...)
	key := filepath.Join(c.dir, "archive", "archive", "signing.pub.pem")
	out := c.run(env, "archive", "verify", "--deep", "--public-key", key, "--heads", filepath.Join(c.dir, "heads.ndjson"))
	c.t.Log(strings.TrimSpace(out))
	for _, v := range c.shows {
		if v.asks != "chat" && v.asks != "socket" {
			continue
		}
		var l struct {
			Repo      string
			Decisions []struct{ Name, Decision, Actor, For string }
		}
		if err := json.Unmarshal([]byte(c.run(env, "archive", "show", v.id, "--json")), &l); err != nil {
			c.t.Fatal(err)
		}
		if d := cmp.Diff([]struct{ Name, Decision, Actor, For string }{{"answer", "allow", "chat", "slack:T0TEAM/U0OK"}}, l.Decisions); d != "" || l.Repo != "acme/shop" {
			c.t.Errorf("%s of %s: decisions (-want +got):\n%s", v.name, l.Repo, d)
		}
	}
	listed := c.run(env, "archive", "ls", "--actor", "slack:T0TEAM/U0OK", "--repo", "acme/shop")
	for _, v := range c.shows {
		if strings.Contains(listed, v.id) != (v.asks == "chat" || v.asks == "socket") {
			c.t.Errorf("archive ls --actor lists\n%s", listed)
		}
	}
	store, err := s3.New(s3.Config{
		Endpoint: "http://" + c.gateway.addr, Region: "us-east-1", PathStyle: true, AccessKey: s3Access, SecretKey: s3Secret,
		Bucket: "kept", Prefix: "a/", PartSize: 5 << 20, Timeout: time.Minute, Tries: 3,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	defer store.Close()
	tried := 0
	for i, err := range store.List(c.t.Context(), "t/") {
		if err != nil {
			c.t.Fatal(err)
		}
		if !strings.HasSuffix(i.Key, ".seg") && !strings.Contains(i.Key, "/heads/") {
			continue
		}
		tried++
		forged := io.NewSectionReader(strings.NewReader("forged"), 0, 6)
		if err := store.Create(c.t.Context(), i.Key, forged); !errors.Is(err, fs.ErrExist) {
			c.t.Errorf("%s can be written again: %v", i.Key, err)
		}
	}
	if tried < 2 {
		c.t.Errorf("%d objects of the archive", tried)
	}
	c.run(env, "archive", "verify", "--public-key", key) // and is as it was
}
