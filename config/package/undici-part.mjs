// The two things tillsync takes from undici. Its index would load fetch, mocks, caches and WebSockets as well,
// a third of the start. A use of anything else ends the build, since it is not exported here.

import { setFlagsFromString } from 'node:v8';
import api from 'undici/lib/api/index.js';
import util from 'undici/lib/core/util.js';
import Agent from 'undici/lib/dispatcher/agent.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';

Object.assign(Dispatcher.prototype, api);

let hasParser = false;

/** As undici's own, for a call that names its dispatcher. */
async function request(address, { dispatcher, ...options }) {
  // The first call compiles the HTTP parser. For a call a second the quick compiler is enough; the other one would
  // hold 8 MB. As a flag of the process it would have Node compile its own modules anew at each start.
  if (!hasParser) setFlagsFromString('--liftoff-only');
  hasParser = true;
  const url = util.parseURL(address);
  return dispatcher.request({
    ...options,
    origin: url.origin,
    path: url.search ? `${url.pathname}${url.search}` : url.pathname,
    method: options.method || (options.body ? 'PUT' : 'GET'),
  });
}

export { Agent, request };
