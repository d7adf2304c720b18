// Package say is what the test reads of a client: a line for each event, and one at
// the end.
package say

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"unicode/utf16"
)

// Token is the token for the addresses.
func Token() string { return os.Getenv("CBCAST_TOKEN") }

// Each calls follow for each address of the command line, side by side.
func Each(follow func(address string, tell func(id, name, data string)) error) {
	var all sync.WaitGroup
	for n, address := range os.Args[1:] {
		all.Go(func() {
			err := follow(address, func(id, name, data string) { event(n, id, name, data) })
			if err != nil {
				line(fmt.Sprintf("%d failed %s", n, strings.ReplaceAll(err.Error(), "\n", " ")))
				return
			}
			line(fmt.Sprintf("%d end", n))
		})
	}
	all.Wait()
}

func event(stream int, id, name, data string) {
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		line(fmt.Sprintf("%d failed %.100q: %v", stream, data, err))
		return
	}
	if id == "" {
		id = "-"
	}
	if e.ID == "" {
		e.ID = "-"
	}
	line(fmt.Sprintf("%d %s %s %d %s", stream, name, id, len(utf16.Encode([]rune(data))), e.ID))
}

var mu sync.Mutex // of stdout

func line(s string) {
	mu.Lock()
	defer mu.Unlock()
	fmt.Println(s)
}
