package spool_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/ingest/spool"
)

// TestMain makes the test binary the writers that the tests below kill.
func TestMain(m *testing.M) {
	switch os.Getenv("SPOOL_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "write":
		write(os.Getenv("SPOOL_TEST_ROOT"))
	case "limit":
		limit(os.Getenv("SPOOL_TEST_ROOT"))
	}
}

// write appends from four goroutines, and prints each number once it has it.
func write(root string) {
	s, err := spool.Create(root, spool.Meta{Run: run}, spool.Options{SegmentSize: 64 << 10, Tail: 1})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	j, err := s.Journal()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				data := []byte(fmt.Sprintf("%d/%d %s", g, i, strings.Repeat("x", i%700)))
				seq, err := s.Append([]byte("m"), data)
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				fmt.Printf("%d %s\n", seq, data)
				if g == 0 && i%50 == 0 {
					id := fmt.Sprint("cmd-", i)
					if err := j.Intent(id, data); err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
					fmt.Println("intent", id)
				}
			}
		})
	}
	wg.Wait()
}

// TestKilledWriter: every record whose append returned is there after SIGKILL,
// and every intent.
func TestKilledWriter(t *testing.T) {
	for round := range 5 {
		root := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SPOOL_TEST_CHILD=write", "SPOOL_TEST_ROOT="+root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		written := map[uint64]string{}
		var intents []string
		in := bufio.NewScanner(out)
		for in.Scan() {
			first, rest, _ := strings.Cut(in.Text(), " ")
			if first == "intent" {
				intents = append(intents, rest)
				continue
			}
			n, err := strconv.ParseUint(first, 10, 64)
			if err != nil {
				t.Fatal(in.Text())
			}
			written[n] = rest
			if len(written) == 1000+round*701 {
				if _, err := spool.Open(root, run, spool.Options{}); !errors.Is(err, spool.ErrLocked) {
					t.Errorf("writer lives: got %v, want ErrLocked", err)
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("writer: %v", err)
		}
		s, err := spool.Open(root, run, spool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range written {
			_, data, ok, err := s.Record(n)
			// The last line may be cut by the kill itself.
			if !ok || err != nil || !strings.HasPrefix(string(data), want) {
				t.Fatalf("record %d: %v, %v, %q, want %q", n, ok, err, data, want)
			}
		}
		for n := range s.Last() {
			if _, _, ok, err := s.Record(n + 1); !ok || err != nil {
				t.Fatalf("record %d: %v, %v", n+1, ok, err)
			}
		}
		j, err := s.Journal()
		if err != nil {
			t.Fatal(err)
		}
		var pending []string
		for _, c := range j.Pending() {
			pending = append(pending, c.ID)
		}
		// The last one may be written, and its writer killed before it said so.
		if len(pending) < len(intents) || !slices.Equal(intents, pending[:len(intents)]) {
			t.Errorf("got %v, want %v", pending, intents)
		}
		s.Close()
	}
}

// limit appends under a limit for the size of files, which lets the kernel write
// half a record and then refuses.
func limit(root string) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := spool.Create(root, spool.Meta{Run: run}, spool.Options{})
	check := func(ok bool, v ...any) {
		if !ok {
			fmt.Println(v...)
			os.Exit(1)
		}
	}
	check(err == nil, err)
	set := func(n uint64) {
		check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: 1 << 30}) == nil, "setrlimit")
	}
	n := uint64(0)
	fill := func(stop uint64) {
		for n < stop {
			meta, data := content(n+1, 1000)
			seq, err := s.Append(meta, data)
			if err != nil {
				check(errors.Is(err, spool.ErrFull) && errors.Is(err, syscall.EFBIG), err)
				return
			}
			n++
			check(seq == n, seq, n)
		}
	}
	set(100_000)
	fill(1 << 40)
	full := n
	check(full > 90 && full < 100, "full after", full)
	fill(1 << 40)
	check(n == full, "not full any more", n)
	set(1 << 30)
	fill(300)
	check(n == 300, "did not go on", n)
	check(s.Close() == nil, "close")
	fmt.Println("ok")
	os.Exit(0)
}

func TestFileSizeLimit(t *testing.T) {
	root := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SPOOL_TEST_CHILD=limit", "SPOOL_TEST_ROOT="+root)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := spool.Open(root, run, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(t, s, 1, 300, 1000)
	if r := s.Recovered(); r.Cut != 0 {
		t.Errorf("recovered %+v", r)
	}
}
