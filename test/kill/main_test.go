// Package kill kills the consumer programs, as real processes and at random, while runs
// are published, and then looks whether anything is missing, doubled or miscounted.
package kill

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cbcast/cbcast/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Main(m, nil)) }

// long is a safety net: nothing here takes that long.
const long = 5 * time.Minute

// size is how many events are published, and how often a program is killed meanwhile.
// CBCAST_KILL=long is 100 000 and 50; CBCAST_KILL_EVENTS and CBCAST_KILL_KILLS set them.
func size() (events, kills int) {
	events, kills = 3000, 6
	if os.Getenv("CBCAST_KILL") == "long" {
		events, kills = 100_000, 50
	}
	for name, p := range map[string]*int{"CBCAST_KILL_EVENTS": &events, "CBCAST_KILL_KILLS": &kills} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			*p = n
		}
	}
	return events, kills
}
