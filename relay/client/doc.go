// Package client follows runs and gives them commands over a relay's HTTP API,
// see docs/api.md. It needs nothing but the standard library.
//
//	c := client.Client{URL: "http://127.0.0.1:8420", Token: token}
//	err := c.Follow(ctx, run, 0, func(e client.Event) error {
//		fmt.Println(e.Seq, e.Name, string(e.Data))
//		return nil
//	})
package client
