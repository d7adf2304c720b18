// Package consumers runs notify, metrics and archive against real servers of others.
package consumers

import (
	"os"
	"path/filepath"
	"testing"
)

// toolsVar names the directory that the script fetch has filled.
const toolsVar = "CBCAST_CONSUMER_TOOLS"

// tool is the path of a program that fetch made ready. Without them the test is skipped.
func tool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(toolsVar)
	if dir == "" {
		t.Skipf("needs real servers: test/consumers/fetch DIR && %s=DIR go test ./test/consumers (or make consumers)", toolsVar)
	}
	path, err := filepath.Abs(filepath.Join(dir, "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run test/consumers/fetch again", err)
	}
	return path
}
