package trace

import (
	"fmt"
	"os"
	"testing"
)

func TestZZ(t *testing.T) {
	for _, n := range []string{os.Getenv("CAP")} {
		fmt.Println(tree(build(BuilderOptions{}, load(t, n))))
	}
}
