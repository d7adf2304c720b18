package consumers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/program"
)

// The test binary is also the agent that is wrapped: with these variables it plays a
// recording.
const (
	playVar  = "CONSUMERS_PLAY"  // name of the recording
	stdinVar = "CONSUMERS_STDIN" // file that what it reads is written to
)

func TestMain(m *testing.M) {
	switch name := os.Getenv(playVar); {
	case name != "":
		os.Exit(play(name))
	case os.Getenv(toolsVar) == "":
		os.Exit(m.Run()) // nothing here needs the program
	}
	os.Exit(program.Main(m, nil))
}

// play does what the recorded agent did, in its order and without its pauses: a line of
// stdin is read where the recording read one, whatever it says.
func play(name string) int {
	c, err := capture.Load(name)
	if err != nil {
		return failed(err)
	}
	log, err := os.OpenFile(os.Getenv(stdinVar), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return failed(err)
	}
	sigs := make(chan os.Signal, 4)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT)
	in := bufio.NewReader(os.Stdin)
	for _, e := range c.Timeline {
		switch e.Dir {
		case capture.Out:
			_, err = os.Stdout.Write(line(e))
		case capture.Err:
			_, err = os.Stderr.Write(line(e))
		case capture.In:
			var got []byte
			if got, err = in.ReadBytes('\n'); err == nil {
				_, err = log.Write(got)
			}
		case capture.InEOF:
			_, err = io.Copy(log, in)
		case capture.Signal:
			<-sigs
		case capture.Exit:
			return c.Code
		}
		if err != nil {
			return failed(err)
		}
	}
	return c.Code
}

// line is an entry as it was on the wire.
func line(e capture.Entry) []byte {
	if e.Cut {
		return e.Data
	}
	return append(e.Data[:len(e.Data):len(e.Data)], '\n')
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "player:", err)
	return 99
}
