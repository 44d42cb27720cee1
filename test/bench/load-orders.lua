-- wrk -s load-orders.lua URL -- SECRET ID_PREFIX keep|close BODY_FILE
-- Posts the order in BODY_FILE with a fresh id each time. The file holds ORDER_ID where the id belongs.
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  local file = assert(io.open(args[4], "rb"))
  local body = file:read("*a")
  file:close()
  local from, to = body:find("ORDER_ID", 1, true)
  head, tail = body:sub(1, from - 1), body:sub(to + 1)
  prefix = args[2] .. "-" .. number .. "-"
  headers = { ["content-type"] = "application/json", ["x-webhook-secret"] = args[1] }
  if args[3] == "close" then headers["connection"] = "close" end
  sent = 0
end

function request()
  sent = sent + 1
  return wrk.format("POST", nil, headers, head .. prefix .. sent .. tail)
end
