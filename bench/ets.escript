#!/usr/bin/env escript
%%! -smp enable
%% Nanoseconds per ets:update_counter, by CPU time of the runtime where it runs alone: one hot key, and many keys at
%% random. Medians of the rounds.
-mode(compile).

main([Keys, Rounds]) ->
    K = list_to_integer(Keys),
    R = list_to_integer(Rounds),
    T = ets:new(counters, [set, public, {write_concurrency, true}]),
    Names = list_to_tuple([iolist_to_binary(io_lib:format("account-~8..0b", [I])) || I <- lists:seq(1, K)]),
    [ets:insert(T, {{element(I, Names), events}, 0}) || I <- lists:seq(1, K)],
    Hot = {element(1, Names), events},
    Order = [{element(rand:uniform(K), Names), events} || _ <- lists:seq(1, 200000)],
    Same = lists:duplicate(200000, Hot),
    io:format("one hot key\t~.1f~n", [median([round(T, Same) || _ <- lists:seq(1, R)])]),
    io:format("~b keys at random\t~.1f~n", [K, median([round(T, Order) || _ <- lists:seq(1, R)])]).

round(T, Order) ->
    {Before, _} = statistics(runtime),
    Began = erlang:monotonic_time(microsecond),
    lists:foreach(fun(Key) -> ets:update_counter(T, Key, {2, 1}) end, Order),
    Wall = erlang:monotonic_time(microsecond) - Began,
    {After, _} = statistics(runtime),
    min(Wall * 1000, max(1, (After - Before)) * 1000000) / length(Order).

median(L) -> lists:nth(length(L) div 2 + 1, lists:sort(L)).
