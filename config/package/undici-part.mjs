// The two things tillsync takes from undici. Its index would load fetch, mocks, caches and WebSockets as well,
// a third of the start. A use of anything else ends the build, since it is not exported here.

import api from 'undici/lib/api/index.js';
import util from 'undici/lib/core/util.js';
import Agent from 'undici/lib/dispatcher/agent.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';

Object.assign(Dispatcher.prototype, api);

/** As undici's own, for a call that names its dispatcher. */
async function request(address, { dispatcher, ...options }) {
  const url = util.parseURL(address);
  return dispatcher.request({
    ...options,
    origin: url.origin,
    path: url.search ? `${url.pathname}${url.search}` : url.pathname,
    method: options.method || (options.body ? 'PUT' : 'GET'),
  });
}

export { Agent, request };
