package segment

import "container/list"

// A cache keeps what was read last, within a bound of bytes.
type cache struct {
	limit, size int
	items       map[string]*list.Element
	order       list.List // of *cached, newest first
}

type cached struct {
	key  string
	v    any
	size int
}

func (c *cache) get(key string) any {
	e := c.items[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).v
}

func (c *cache) put(key string, v any, size int) {
	if c.items == nil {
		c.items = map[string]*list.Element{}
	}
	c.drop(key)
	c.items[key] = c.order.PushFront(&cached{key, v, size})
	for c.size += size; c.size > c.limit && c.order.Len() > 1; {
		c.drop(c.order.Back().Value.(*cached).key)
	}
}

func (c *cache) drop(key string) {
	if e := c.items[key]; e != nil {
		c.order.Remove(e)
		delete(c.items, key)
		c.size -= e.Value.(*cached).size
	}
}
