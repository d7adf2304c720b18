package replay

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/test/capture"
)

// The test binary is also the child: with these variables it plays a recording.
const (
	envPlay = "REPLAY_PLAY" // name of the recording
	envCap  = "REPLAY_CAP"  // longest gap between two entries, 0 is the true timing
)

func TestMain(m *testing.M) {
	if name := os.Getenv(envPlay); name != "" {
		play(name)
	}
	os.Exit(runTests(m))
}

// play does what the recorded child did, and never returns: each line at its
// time, each line of stdin awaited, the same end.
func play(name string) {
	c, err := capture.Load(name)
	if err != nil {
		fatal(err)
	}
	longest, _ := strconv.Atoi(os.Getenv(envCap))
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	var last time.Duration
	for _, e := range c.Timeline {
		if gap := pace(e.At-last, longest); gap > 0 {
			out.Flush()
			time.Sleep(gap)
		}
		last = e.At
		switch e.Dir {
		case capture.Out:
			out.Write(e.Data)
			if !e.Cut {
				out.WriteByte('\n')
			}
			out.Flush()
		case capture.Err:
			os.Stderr.Write(line(e))
		case capture.In:
			out.Flush()
			want := line(e)
			got := make([]byte, len(want))
			if n, err := io.ReadFull(in, got); err != nil || string(got) != string(want) {
				fatal(fmt.Errorf("stdin: %d of %d bytes, %v: got %.200q want %.200q", n, len(want), err, got[:n], want))
			}
		case capture.InEOF:
			if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
				fatal(fmt.Errorf("end of stdin: %v, %d bytes more", err, len(b)))
			}
		case capture.Signal:
			if catchable(string(e.Data)) {
				// Two of a kind at once may arrive as one.
				select {
				case <-sigs:
				case <-time.After(2 * time.Second):
				}
			}
		case capture.Exit:
			die(c)
		}
	}
}

// catchable reports whether a recorded signal is one that a child can see.
func catchable(name string) bool { return name != "SIGKILL" && name != "SIGSTOP" && name != "SIGCONT" }

// pace shortens a gap.
func pace(gap time.Duration, longestMS int) time.Duration {
	if longestMS > 0 {
		return min(gap, time.Duration(longestMS)*time.Millisecond)
	}
	return gap
}

func line(e capture.Entry) []byte {
	if e.Cut {
		return e.Data
	}
	return append(e.Data[:len(e.Data):len(e.Data)], '\n')
}

// die ends this process as the recorded child ended.
func die(c *capture.Capture) {
	if c.Signal == "" {
		os.Exit(c.Code)
	}
	os.Exit(child.Reraise(signalNumber(c.Signal)))
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "player:", err)
	os.Exit(99)
}

func signalNumber(name string) syscall.Signal {
	for s := syscall.Signal(1); s < 32; s++ {
		if signalName(s) == name {
			return s
		}
	}
	panic("no signal " + name)
}
