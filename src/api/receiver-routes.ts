import { TillsyncError } from '../core/errors.ts';
import { namedEvent, namedHook } from '../hooks/hook-test.ts';
import { requireRight } from './access.ts';
import { type ApiFamily, type LocalApiOptions, route, untilClosed } from './api.ts';
import { alarmTestAnswer, hookPath, hookTestAnswer, hookTestRequest } from './schemas.ts';

/** Returns the routes that send a test message to those who are told of alarms, or to a hook. */
export function receiverRoutes({ services, receivers }: LocalApiOptions): ApiFamily {
  const alarms = route({
    method: 'post',
    path: '/alarms/test',
    operationId: 'testAlarms',
    may: ['decide'],
    summary: 'Send a test alarm to everybody who is told, and say who took it',
    answer: alarmTestAnswer,
    handle: async ({ reply }) => {
      const results = await receivers.testAlarms(untilClosed(reply));
      return { ok: results.every(({ ok }) => ok), results };
    },
  });
  const ofHook = route({
    method: 'post',
    path: '/hooks/{hook}/test',
    operationId: 'testHook',
    may: ['decide'],
    summary: 'Send a hook a test event, and say what it answers; its place stays',
    params: hookPath,
    body: hookTestRequest,
    answer: hookTestAnswer,
    refusals: [404],
    handle: async ({ params, body, request, reply }) => {
      const hook = namedHook(services.config, params.hook);
      const event = namedEvent(hook, body.event);
      const { order = null } = body;
      if (order !== null && event === 'change.rejected') {
        throw new TillsyncError('usage', `order is for events of orders, not for ${event}.`);
      }
      // The hook gets the order, and what it answers is shown whole.
      if (order !== null) requireRight(request, ['orders']);
      const asked = { hook: hook.name, event, order };
      const { ok, what, text } = await receivers.testHook(asked, untilClosed(reply));
      return { ok, hook: hook.name, event, what, answer: text };
    },
  });
  return { tag: 'receivers', routes: [alarms, ofHook] };
}
